"""Choose the execution plan of a model: as configured, as measured, or the default."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from serving.bundle.manifest import Manifest
from serving.bundle.opening import Bundle
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.plan import (
    Allowance,
    Figures,
    FiguresFile,
    Origin,
    Plan,
    candidates,
    choose,
    default_plan,
    measure,
    unmeasured_plan,
)
from serving.engine.runtime.session import open_graphs, settled
from serving.engine.states.store import max_source_tokens
from serving.engine.worker import Steps
from serving.request import Event, FailedEvent, GenerationRequest, is_final

logger = logging.getLogger(__name__)

ROWS_AT_LOAD = 16  # for each CPU: 32 on two
# Plans are measured with their graphs loaded beside each other; of a larger model few steps would
# fit into the time.
MAX_MEASURED_BYTES = 512 * 2**20

MakeEngine = Callable[[EngineConfig, Graphs], Steps]


@dataclass(frozen=True)
class Settled:
    """Holds a plan, how it came about, and what engines are made of under it."""

    plan: Plan
    origin: Origin
    config: EngineConfig
    graphs: Graphs

    def __str__(self) -> str:
        return f"{self.plan} ({self.origin})"


class Planner:
    """Plans one bundle. Graphs that were loaded to be measured are not loaded again."""

    def __init__(self, bundle: Bundle, config: EngineConfig, make_engine: MakeEngine) -> None:
        self._bundle, self._make_engine = bundle, make_engine
        self._config = settled(config, bundle.manifest)
        self._loaded: dict[int, Graphs] = {}

    def settle(self, allowance: Allowance) -> Settled:
        """Choose a plan. Raises BundleError or DeviceError."""
        plan, origin = self._choose(allowance)
        config = replace(self._config, threads=plan.threads)
        found = Settled(plan, origin, config, self._graphs(plan.threads))
        self._loaded.clear()
        return found

    def _choose(self, allowance: Allowance) -> tuple[Plan, Origin]:
        if self._config.device != "cpu":
            return Plan(1, allowance.threads or allowance.cpus), Origin.ONLY
        if (given := allowance.given) is not None:
            return given, Origin.GIVEN
        if len(candidates(allowance.cpus)) == 1:
            return default_plan(allowance.cpus), Origin.ONLY
        file, default = FiguresFile(self._bundle, allowance.cpus), default_plan(allowance.cpus)
        if figures := file.read():
            return choose(default, figures, allowance.serves_http).plan, Origin.KEPT
        if not allowance.measures or self._num_bytes() > MAX_MEASURED_BYTES:
            return unmeasured_plan(allowance), Origin.DEFAULT
        figures = self._measure(allowance.cpus)
        choice = choose(default, figures, allowance.serves_http)
        if not choice.is_clear:
            return default, Origin.UNCLEAR
        file.write(figures)
        return choice.plan, Origin.MEASURED

    def _measure(self, cpus: int) -> Figures:
        def open_trial(plan: Plan) -> Trial:
            rows = max(1, cpus * ROWS_AT_LOAD // plan.engines)
            config = replace(
                self._config,
                slots=rows,
                threads=plan.threads,
                max_waiting=None,
                prefix_cache_bytes=0,
                encoder_cache_bytes=0,
                speculation=False,  # a step of a trial is one token of each row
            )
            graphs = self._graphs(plan.threads)
            engines = [self._make_engine(config, graphs) for _ in range(plan.engines)]
            manifest = self._bundle.manifest
            kind = EncodingTrial if manifest.task.only_encodes else Trial
            return kind(manifest, engines, rows)

        return measure(candidates(cpus), open_trial)

    def _graphs(self, threads: int) -> Graphs:
        if threads not in self._loaded:
            self._loaded[threads] = open_graphs(
                self._bundle, replace(self._config, threads=threads)
            )
        return self._loaded[threads]

    def _num_bytes(self) -> int:
        files = (self._bundle.folder / name for name in self._bundle.manifest.files)
        return sum(file.stat().st_size for file in files)


_NUM_TOKENS = 24  # of a source or a prompt
_NUM_NEW_TOKENS = 32
_SHORTLIST_TOKENS = 2048
_MIN_STEPS = 2


class Trial:
    """Keeps engines of one plan at work. They share nothing but graphs."""

    def __init__(self, manifest: Manifest, engines: Sequence[Steps], rows_each: int) -> None:
        self._engines, self._rows_each = engines, rows_each
        self._model = SampleRequests(manifest)

    def lone_step(self, seconds: float) -> float:
        """Return the seconds of a step of one row, while nothing else runs."""
        return self._step_seconds(self._engines[0], 1, seconds)

    def tokens_per_second(self, seconds: float) -> float:
        """Let all engines step at once, so many rows each."""
        found: list[float | BaseException] = []
        start = threading.Barrier(len(self._engines))

        def run(engine: Steps) -> None:
            try:
                found.append(self._step_seconds(engine, self._rows_each, seconds, start.wait))
            except BaseException as error:
                found.append(error)
                start.abort()

        threads = [threading.Thread(target=run, args=(each,)) for each in self._engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return sum(self._rows_each / each for each in found if not isinstance(each, BaseException))

    def _step_seconds(
        self,
        engine: Steps,
        num_rows: int,
        seconds: float,
        when_ready: Callable[[], object] = lambda: None,
    ) -> float:
        """Time steps for so long, from when so many requests have their rows."""
        while engine.stats().num_rows < num_rows:
            for _ in range(num_rows - engine.stats().num_rows - engine.stats().num_waiting):
                engine.submit(next(self._model))
            self._step(engine)
        when_ready()
        started, num_steps = time.perf_counter(), 0
        while num_steps < _MIN_STEPS or time.perf_counter() - started < seconds:
            self._step(engine)
            num_steps += 1
        return (time.perf_counter() - started) / num_steps

    def _step(self, engine: Steps) -> None:
        """Let a request that has ended be followed by another one."""
        events = engine.step()
        _raise_failures(events)
        for event in events:
            if is_final(event):
                engine.submit(next(self._model))


class EncodingTrial(Trial):
    """Keeps engines at work that only encode: they have no rows to be filled."""

    def _step_seconds(
        self,
        engine: Steps,
        num_rows: int,
        seconds: float,
        when_ready: Callable[[], object] = lambda: None,
    ) -> float:
        """Time the encoding of so many requests, again and again."""
        when_ready()
        started, num_rounds = time.perf_counter(), 0
        while num_rounds < _MIN_STEPS or time.perf_counter() - started < seconds:
            engine.submit(*(next(self._model) for _ in range(num_rows)))
            while engine.has_work:
                _raise_failures(engine.step())
            num_rounds += 1
        return (time.perf_counter() - started) / num_rounds


def _raise_failures(events: Iterable[Event]) -> None:
    for event in events:
        if isinstance(event, FailedEvent):
            raise event.error


class SampleRequests:
    """Gives requests of plausible size, with tokens that any model has."""

    def __init__(self, manifest: Manifest) -> None:
        self._has_source = "encode" in manifest.graphs
        vocab_size = manifest.vocab_size
        self._source_vocab_size = manifest.source_vocab_size or vocab_size
        self._vocab_size = vocab_size
        longest = max_source_tokens(manifest) if self._has_source else _room(manifest)
        self._num_tokens = max(1, min(_NUM_TOKENS, longest))
        self._num_new = max(1, min(_NUM_NEW_TOKENS, _room(manifest)))
        shortlist = np.arange(min(_SHORTLIST_TOKENS, vocab_size))
        self._shortlist = shortlist if manifest.has_shortlist else None
        self._numbers = count()
        self._lock = threading.Lock()

    def __next__(self) -> GenerationRequest:
        with self._lock:
            number = next(self._numbers)
        size = self._source_vocab_size if self._has_source else self._vocab_size
        ids = tuple((7 * number + 3 * i) % size for i in range(self._num_tokens))
        return GenerationRequest(
            str(number),
            ids if self._has_source else None,
            () if self._has_source else ids,
            max_new_tokens=self._num_new,
            ignore_eos=True,
            shortlist=self._shortlist,
        )


def _room(manifest: Manifest) -> int:
    """Count the tokens that a prompt, or an output, may have where both are as long."""
    return (manifest.limits.max_target_tokens - len(manifest.tokens.prompt_prefix) - 1) // 2
