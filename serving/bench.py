"""`attendant bench`: how fast the bare engine is, without HTTP, Ray or event loops.

A closed loop for each batch size: that many requests are in flight, and the next is submitted when
one ends. Everything is computed from the raw times of steps and tokens.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from serving.bundle.opening import Bundle
    from serving.engine.engine import Engine
    from serving.parameters import SamplingParams
    from serving.request import Event, GenerationRequest

SENTENCES = """\
A man in a red jacket is waiting for the bus.
Two dogs are running through the snow.
I don't know what to say.
She has been working here for three years, and she still likes it.
The children are playing football in the park near the old church.
Where did you put the keys?
A young woman with long hair is reading a book on a bench in front of the museum.
It was raining so hard that we had to stop the car.
He told me that he would come back before the end of the week.
People are sitting around a table and eating dinner.
What time does the train leave?
The little girl is holding her father's hand while they cross the street.
I would have called you if I had known your number.
A group of people are standing on a beach, watching the sun go down.
My brother never drinks coffee.
An old man is playing the guitar on the street while a small crowd listens to him.
"""
PROMPT_NEW_TOKENS = 64
MIN_REQUESTS = 32


@dataclass(frozen=True)
class Result:
    """One batch size. Times to the first token count from the submission of a request."""

    batch: int
    requests: int
    seconds: float
    generated_tokens: int
    tokens_per_second: float
    sentences_per_second: float
    mean_rows: float
    step_ms: dict[str, float]
    host_ms: dict[str, float]
    first_token_ms: dict[str, float]
    phase_seconds: dict[str, float]


class BatchSizes(click.ParamType):
    name = "sizes"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if not isinstance(value, str):
            return tuple(value)
        parts = value.split(",")
        if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} is not a list of batch sizes such as 1,8,32", param, ctx)
        return tuple(map(int, parts))


@click.command(context_settings={"show_default": True})
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--batch", type=BatchSizes(), default="1,8,32", help="Requests in flight.")
@click.option(
    "--input",
    "input_file",
    type=click.File(encoding="utf-8"),
    show_default="built-in sentences",
    help="Sentences or prompts, one a line.",
)
@click.option(
    "--requests", type=click.IntRange(1), help="Per batch size.  [default: 8 x batch, at least 32]"
)
@click.option("--max-new-tokens", type=click.IntRange(1), help="Longest output.")
@click.option("--temperature", type=click.FloatRange(0), default=0.0, help="0 is greedy.")
@click.option("--top-k", type=click.IntRange(0), default=0, help="0 is off.")
@click.option("--top-p", type=click.FloatRange(0, 1, min_open=True), default=1.0, help="1 is off.")
@click.option("--threads", type=click.IntRange(1), show_default="all CPUs")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")
@click.option("--json", "wants_json", is_flag=True, help="Report as JSON.")
def bench(
    bundle: Path,
    batch: tuple[int, ...],
    input_file: Any,
    requests: int | None,
    max_new_tokens: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    threads: int | None,
    device: Any,
    wants_json: bool,
) -> None:
    """Measure the bare engine on BUNDLE: tokens/s, sentences/s, step times, time to first token."""
    from serving.bundle.opening import open_bundle
    from serving.engine.config import EngineConfig, available_cpus
    from serving.engine.engine import Engine
    from serving.parameters import SamplingParams

    opened = open_bundle(bundle)
    lines = input_file.read().splitlines() if input_file else SENTENCES.splitlines()
    sampling = SamplingParams(temperature, top_k, top_p, seed=0)
    wanted = requests_of(opened, lines, sampling, max_new_tokens)
    if not wanted:
        raise click.BadParameter("has no line with text in it", param_hint="--input")
    results = []
    for num_rows in batch:
        config = EngineConfig(num_rows, threads or available_cpus(), device)
        engine = Engine(opened, config)
        run_closed_loop(engine, list(islice(endless(wanted), 2 * num_rows)), num_rows)  # warm up
        count = requests or max(8 * num_rows, MIN_REQUESTS)
        result = run_closed_loop(engine, list(islice(endless(wanted), count)), num_rows)
        results.append(result)
        if not wants_json:
            click.echo(_line(result))
    if wants_json:
        report = {
            "bundle": opened.manifest.name,
            "precision": opened.manifest.precision,
            "device": device,
            "threads": threads or available_cpus(),
            "results": [asdict(result) for result in results],
        }
        click.echo(json.dumps(report))


def requests_of(
    bundle: "Bundle", lines: Sequence[str], sampling: "SamplingParams", max_new_tokens: int | None
) -> list["GenerationRequest"]:
    """A line is a source where the model has an encoder, else a prompt; both cut to the limits."""
    from serving.request import GenerationRequest
    from serving.text.tokenizer import Tokenizer

    tokens, limits = bundle.manifest.tokens, bundle.manifest.limits
    encoded = Tokenizer(bundle.tokenizer_path).encode_batch(
        [each for each in lines if each.strip()]
    )
    if "encode" not in bundle.manifest.graphs:
        room = limits.max_target_tokens // 2
        count = max_new_tokens or PROMPT_NEW_TOKENS
        return [GenerationRequest("", None, tuple(ids[:room]), sampling, count) for ids in encoded]
    room = (limits.max_source_tokens or 256) - len(tokens.source_prefix + tokens.source_suffix)
    sources = [(*tokens.source_prefix, *ids[:room], *tokens.source_suffix) for ids in encoded]
    return [GenerationRequest("", ids, (), sampling, max_new_tokens) for ids in sources]


def endless(requests: Sequence["GenerationRequest"]) -> Iterator["GenerationRequest"]:
    for i, request in enumerate(cycle(requests)):
        yield replace(request, request_id=str(i))


def run_closed_loop(
    engine: "Engine", requests: Sequence["GenerationRequest"], num_rows: int
) -> Result:
    watch = Stopwatch(engine)
    waiting = iter(requests)
    watch.submit(islice(waiting, num_rows))
    while engine.has_work:
        num_ended = watch.step()
        watch.submit(islice(waiting, num_ended))
    return watch.result(num_rows)


class Stopwatch:
    """Drives an engine and keeps the raw times."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._started = time.perf_counter()
        self._submitted: dict[str, float] = {}
        self._first_token_seconds: dict[str, float] = {}
        self._step_seconds: list[float] = []
        self._host_seconds: list[float] = []
        self._rows: list[int] = []
        self._phase_seconds: dict[str, float] = {}
        self._num_tokens = 0

    def submit(self, requests: Iterator["GenerationRequest"]) -> None:
        for request in requests:
            self._submitted[request.request_id] = time.perf_counter()
            self._engine.submit(request)

    def step(self) -> int:
        """Take a step; returns how many requests ended."""
        started = time.perf_counter()
        events = self._engine.step()
        now = time.perf_counter()
        phases = self._engine.report.phase_seconds
        self._step_seconds.append(now - started)
        self._host_seconds.append(now - started - sum(phases.values()))
        self._rows.append(self._engine.report.num_rows)
        for phase, seconds in phases.items():
            self._phase_seconds[phase] = self._phase_seconds.get(phase, 0.0) + seconds
        return sum(self._read(event, now) for event in events)

    def _read(self, event: "Event", now: float) -> bool:
        """Whether it ends its request."""
        from serving.request import FailedEvent, FinishedEvent

        if isinstance(event, FailedEvent):
            raise event.error
        request_id = event.request_id
        if request_id not in self._first_token_seconds:
            self._first_token_seconds[request_id] = now - self._submitted[request_id]
        if isinstance(event, FinishedEvent):
            self._num_tokens += event.num_generated_tokens
            return True
        return False

    def result(self, num_rows: int) -> Result:
        seconds = time.perf_counter() - self._started
        return Result(
            batch=num_rows,
            requests=len(self._submitted),
            seconds=round(seconds, 4),
            generated_tokens=self._num_tokens,
            tokens_per_second=round(self._num_tokens / seconds, 1),
            sentences_per_second=round(len(self._submitted) / seconds, 2),
            mean_rows=round(sum(self._rows) / len(self._rows), 2),
            step_ms=percentiles(self._step_seconds),
            host_ms=percentiles(self._host_seconds),
            first_token_ms=percentiles(list(self._first_token_seconds.values())),
            phase_seconds={name: round(each, 4) for name, each in self._phase_seconds.items()},
        )


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds, by nearest rank."""
    ordered = sorted(seconds)
    ranks = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    return {
        name: round(ordered[min(int(rank * len(ordered)), len(ordered) - 1)] * 1e3, 3)
        for name, rank in ranks.items()
    }


def _line(result: Result) -> str:
    return (
        f"batch {result.batch:3}: {result.tokens_per_second:9.1f} tokens/s"
        f" {result.sentences_per_second:8.2f} sentences/s"
        f" | step ms p50 {result.step_ms['p50']:.2f} p99 {result.step_ms['p99']:.2f}"
        f" (host {result.host_ms['p50']:.3f})"
        f" | first token ms p50 {result.first_token_ms['p50']:.1f}"
        f" p99 {result.first_token_ms['p99']:.1f} | {result.requests} requests"
    )
