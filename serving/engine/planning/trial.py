"""Runs a model under a plan for a moment, as it would be served, and says how fast it was."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.states.store import max_source_tokens
from serving.engine.worker import Steps
from serving.request import Event, FailedEvent, GenerationRequest, is_final

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
