"""Compares within one run: both sides in turns, on one engine, again and again.

What is compared are raw times, once for each repetition. A machine that is busy with other things
disturbs both sides alike.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import click

from loadtest.bench.closed_loop import (
    STEPS,
    Clock,
    Share,
    end,
    run_closed_loop,
    seconds_of_steps,
)
from loadtest.bench.workload import BenchWorkload
from serving.bundle.manifest import Task
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.runtime.graph import Graph, Run
from serving.engine.runtime.session import open_graphs
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import FailedEvent, GenerationRequest, TokenEvent

LONG_PROMPT_TOKENS = 500
STEPS_BEFORE_CANCEL = 5
SENTENCES_EACH = 16  # per request in flight

Raw = dict[str, float]


@dataclass(frozen=True)
class ComparisonOptions:
    """What to compare.

    batch: requests in flight; None is the default of the comparison.
    clock: of beam search and sampling.
    """

    beam: BeamParams
    sampling: SamplingParams
    batch: int | None
    num_repetitions: int
    clock: Clock = time.perf_counter


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    says: the meaning of `value`, which each repetition has beside the raw numbers.
    """

    says: str
    batch: int
    repetitions: list[Raw]

    @property
    def values(self) -> list[float]:
        return [repetition["value"] for repetition in self.repetitions]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def line(self) -> str:
        low, high = min(self.values), max(self.values)
        spread = f"{low:.3f} to {high:.3f} in {len(self.values)} repetitions"
        return f"{self.says}: {self.median:.3f} ({spread})"


def compare_beam(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Compare the time of the same sentences with beam search and with greedy decoding."""
    batch = options.batch or 8
    engine = workload.engine(batch * options.beam.num_beams)
    count = SENTENCES_EACH * batch

    def seconds(**changes: Any) -> float:
        requests = list(islice(workload.requests(**changes), count))
        started = options.clock()
        run_closed_loop(engine, requests, batch)
        return options.clock() - started

    def repeat() -> Raw:
        greedy, beam = seconds(), seconds(beam=options.beam)
        return {"greedy_seconds": greedy, "beam_seconds": beam, "value": beam / greedy}

    says = f"cost of a sentence, beam {options.beam.num_beams} over greedy, batch {batch}"
    return _compare(says, batch, repeat, options)


def compare_sampling(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Compare the steps of full batches, all rows sampled or all greedy."""
    batch = options.batch or 32
    engine = workload.engine(batch)

    def repeat() -> Raw:
        greedy, drawn = (
            seconds_of_steps(engine, [Share(requests, batch)], options.clock).all
            for requests in (
                workload.requests("greedy"),
                workload.requests("sampled", sampling=options.sampling),
            )
        )
        return {"greedy_seconds": greedy, "sampling_seconds": drawn, "value": greedy / drawn}

    filters = ", ".join(f"{name} {value:g}" for name, value in options.sampling.filters.items())
    says = f"tokens/s, sampling ({filters or 'no filter'}) over greedy, batch {batch}"
    return _compare(says, batch, repeat, options)


def compare_graph(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Compare the time of the engine's steps with full batches, without reading sources and
    prompts, with the time of as many runs of the step graph alone over the same states.
    """
    batch = options.batch or 32
    graphs = open_graphs(workload.parts.bundle, workload.config(batch))
    recorded_graph = RecordedGraph(graphs.step, batch)
    engine = workload.engine(batch, graphs=replace(graphs, step=recorded_graph))

    def repeat() -> Raw:
        seconds = seconds_of_steps(engine, [Share(workload.requests(), batch)])
        alone, decoding = recorded_graph.seconds_of(STEPS), seconds.all - seconds.reading
        raw = {"graph_seconds": alone, "decoding_seconds": decoding}
        return {**raw, "reading_seconds": seconds.reading, "value": alone / decoding}

    says = f"tokens/s of decoding, the engine over its step graph alone, batch {batch}"
    return _compare(says, batch, repeat, options)


def compare_mix(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Compare the steps of batches of all three kinds, greedy, beam and sampled, with each alone.

    All batches have the same number of rows; a mixed one gives a third of them to each kind, so its
    tokens would have taken the three alone the mean of their times.
    """
    beams = options.beam.num_beams
    third = max((options.batch or 24) // (3 * beams), 1) * beams
    engine = workload.engine(3 * third)
    kinds: dict[str, tuple[int, dict[str, Any]]] = {
        "greedy": (1, {}),
        "beam": (beams, {"beam": options.beam}),
        "sampling": (1, {"sampling": options.sampling}),
    }

    def share(name: str, num_rows: int) -> Share:
        rows_each, changes = kinds[name]
        return Share(workload.requests(name, **changes), num_rows // rows_each)

    def repeat() -> Raw:
        alone = {name: seconds_of_steps(engine, [share(name, 3 * third)]).all for name in kinds}
        mixed = seconds_of_steps(engine, [share(name, third) for name in kinds]).all
        raw = {f"{name}_seconds": seconds for name, seconds in alone.items()}
        weighted = sum(alone.values()) / len(alone)
        return {**raw, "mixed_seconds": mixed, "value": weighted / mixed}

    says = f"speed, greedy and beam {beams} and sampling mixed over alone, {3 * third} rows"
    return _compare(says, 3 * third, repeat, options)


def compare_cancel(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Count the steps after a cancellation in a full engine until a request that waits gets its
    first token.
    """
    slots = 2 * options.beam.num_beams
    engine = workload.engine(slots)

    def steps(num_victims: int, **changes: Any) -> int:
        victims = workload.requests("victim", **_ENDLESS, **changes)
        return _steps_until_served(engine, list(islice(victims, num_victims)), workload)

    def repeat() -> Raw:
        greedy, beam = steps(slots), steps(2, beam=options.beam)
        return {"greedy_steps": greedy, "beam_steps": beam, "value": max(greedy, beam)}

    says = "steps from a cancellation to the first token in the rows it has freed"
    return _compare(says, slots, repeat, options)


_ENDLESS = {"ignore_eos": True, "max_new_tokens": None}


def _steps_until_served(
    engine: Engine, victims: list[GenerationRequest], workload: BenchWorkload
) -> int:
    # Without a priority the short ones go first.
    waiting = replace(next(workload.requests("waiting", **_ENDLESS, priority=1)), streams=True)
    engine.submit(*victims, waiting)
    for _ in range(STEPS_BEFORE_CANCEL):
        assert not _has_token(engine, waiting), "the victims do not fill the engine"
    engine.cancel(victims[0].request_id)
    steps = 1
    while not _has_token(engine, waiting):
        steps += 1
    end(engine)
    return steps


def _has_token(engine: Engine, request: GenerationRequest) -> bool:
    """Take a step; return whether it brings the request a token."""
    events = [event for event in engine.step() if event.request_id == request.request_id]
    for event in events:
        if isinstance(event, FailedEvent):
            raise event.error
    return any(isinstance(event, TokenEvent) for event in events)


def compare_prefix(workload: BenchWorkload, options: ComparisonOptions) -> Comparison:
    """Compare the time to the first token of long prompts, seen and unseen."""
    manifest = workload.parts.bundle.manifest
    if manifest.task is not Task.GENERATE:
        raise click.UsageError("prefix: needs a language model, this bundle translates")
    room = manifest.limits.max_target_tokens - len(manifest.tokens.prompt_prefix) - 1
    length = min(LONG_PROMPT_TOKENS, room)
    engine = workload.engine(1, EngineConfig.prefix_cache_bytes)
    prompts = _random_prompts(workload, length)

    def repeat() -> Raw:
        prompt = next(prompts)
        miss, hit = _first_token_seconds(engine, prompt), _first_token_seconds(engine, prompt)
        return {"miss_seconds": miss, "hit_seconds": hit, "value": hit / miss}

    says = f"time to first token, prompt of {length} tokens seen over unseen"
    return _compare(says, 1, repeat, options)


def _random_prompts(workload: BenchWorkload, length: int) -> Iterator[GenerationRequest]:
    """Yield tokens of the workload's texts in any order: no two prompts begin alike for long."""
    draw = random.Random(0)
    once = islice(workload.requests(max_new_tokens=1, ignore_eos=True), len(workload.texts))
    requests = list(once)
    prompt_ids = [token_id for request in requests for token_id in request.prompt_ids]
    while True:
        prompt = tuple(draw.choices(prompt_ids, k=length))
        yield replace(requests[0], prompt_ids=prompt, streams=True)


def _first_token_seconds(engine: Engine, request: GenerationRequest) -> float:
    started = time.perf_counter()
    engine.submit(request)
    while not _has_token(engine, request):
        pass
    return time.perf_counter() - started


def _compare(
    says: str, batch: int, repeat: Callable[[], Raw], options: ComparisonOptions
) -> Comparison:
    repeat()  # warm up
    return Comparison(says, batch, [repeat() for _ in range(options.num_repetitions)])


COMPARISONS: dict[str, Callable[[BenchWorkload, ComparisonOptions], Comparison]] = {
    "beam": compare_beam,
    "sampling": compare_sampling,
    "graph": compare_graph,
    "mix": compare_mix,
    "cancel": compare_cancel,
    "prefix": compare_prefix,
}


class RecordedGraph:
    """A graph that keeps the inputs of its last run over a full batch."""

    def __init__(self, graph: Graph, num_rows: int) -> None:
        self._graph, self._num_rows = graph, num_rows
        self._last: Run | None = None

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self._graph.bind(inputs, outputs)
        if inputs["ids"].shape != (self._num_rows, 1):
            return run

        def record() -> None:
            self._last = run
            run()

        return record

    def seconds_of(self, num_runs: int) -> float:
        """Repeat the last run, over the same rows at the same lengths, and return its time."""
        assert self._last is not None, "no step had a full batch"
        started = time.perf_counter()
        for _ in range(num_runs):
            self._last()
        return time.perf_counter() - started
