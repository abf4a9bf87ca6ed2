"""Admit waiting requests into rows: encode their sources, or prefill their prompts in chunks.

Sources are encoded in groups of similar lengths, straight into new rows. Equal sources of a group
are encoded once, and the states of recent ones are cached.

A prompt in progress has a staging row in the state store behind the slots, and its slots are
reserved. Its chunks lie on a fixed grid from position 0, so what a prompt computes depends on its
tokens alone: not on load, budgets or what the cache holds.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from serving.bundle.manifest import AttentionKind, Manifest
from serving.engine.arrays import Array, bytes_per_row
from serving.engine.attention_map import store_prompt_attention, store_source_attention
from serving.engine.config import EngineConfig
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Rows
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.model_runner import ModelRunner
from serving.engine.scheduling.scheduler import EngineQueue, Scheduler
from serving.engine.scheduling.source_batches import encode_groups, encode_span
from serving.engine.states.kind import RowExtent, RowPart
from serving.engine.states.memory import StateCache
from serving.engine.states.store import max_source_tokens, row_bytes
from serving.engine.stats import StepStats
from serving.requests.parameters import TokenIds
from serving.requests.request import Source

# A source that is encoded alone takes twice the time of its share of eight, and all rows wait
# meanwhile. So beside 16 rows it waits for a second one, beside 24 for two; beside fewer rows it
# does not wait. 30 ms from a request's arrival are two to four steps of 32 to 64 rows.
_ROWS_PER_AWAITED_SOURCE = 8
_LONGEST_WAIT_FOR_SOURCES = 0.03
# A window whose text is not good enough is decoded again at once, and encoding takes most of its
# time. So many windows are cached, however large they are: those of eight files side by side.
_CACHED_WINDOWS = 8
Fail = Callable[[list[Generation], Exception], None]  # ends generations that cannot be admitted


class Admission(ABC):
    """Takes generations from the waiting queue and adds them to the rows, immediately or some steps
    later.
    """

    def __init__(
        self,
        config: EngineConfig,
        queue: EngineQueue,
        cache: StateCache,
        batch: Batch,
        runner: ModelRunner,
        rows: Rows,
        fail: Fail,
    ) -> None:
        self._queue, self._cache, self._batch, self._rows = queue, cache, batch, rows
        self._runner, self._states, self._fail = runner, runner.states, fail
        self._config = config

    @property
    def prefilling(self) -> Sequence[Generation]:
        """Return the generations that have left the queue and have no row yet."""
        return ()

    @property
    @abstractmethod
    def is_due(self) -> bool:
        """Return whether a generation can be admitted now."""

    def remove(self, generation: Generation) -> bool:
        """Remove a generation; return whether it was prefilled."""
        return False

    @abstractmethod
    def admit(self, step_stats: StepStats) -> None:
        """Admit generations before the next decoding run."""


@dataclass(slots=True, eq=False)
class Staged:
    """A prompt that is being prefilled.

    row: its staging row.
    token_ids: i64, the tokens to prefill: the whole prompt except its last token.
    num_done: number of tokens that the row's states contain.
    buffer_key: of the state buffers that were current then.
    """

    generation: Generation
    row: int
    token_ids: Array
    num_done: int
    buffer_key: tuple[Hashable, ...]

    @property
    def is_done(self) -> bool:
        return self.num_done == len(self.token_ids)

    def next_positions(self, chunk: int) -> slice:
        return slice(self.num_done, min(self.num_done + chunk, len(self.token_ids)))


class PromptAdmission(Admission):
    """Admission for models without a source, whose step graph reads many tokens in one run."""

    def __init__(
        self,
        config: EngineConfig,
        queue: EngineQueue,
        cache: StateCache,
        batch: Batch,
        runner: ModelRunner,
        rows: Rows,
        fail: Fail,
    ) -> None:
        super().__init__(config, queue, cache, batch, runner, rows, fail)
        self._chunk, self._max_step_tokens = config.prefill_chunk, config.max_step_tokens
        self._staged: list[Staged] = []  # the most urgent first
        self._free_rows = list(runner.staging_rows)

    @property
    def prefilling(self) -> list[Generation]:
        return [staged.generation for staged in self._staged]

    @property
    def is_due(self) -> bool:
        first = self._queue.first
        return bool(self._staged) or (first is not None and self._overtakes(first))

    def remove(self, generation: Generation) -> bool:
        for staged in self._staged:
            if staged.generation is generation:
                self._unstage(staged)
                return True
        return False

    def admit(self, step_stats: StepStats) -> None:
        """Prefill chunks within the token budget that decoding rows leave, but at least one chunk.
        Chunks in the cache cost nothing.
        """
        num_left = self._max_step_tokens - self._batch.num_rows
        has_run = False
        while (staged := self._most_urgent(step_stats)) is not None:
            self._restore(staged, step_stats)
            if staged.is_done:
                self._enter(staged)
                num_left -= 1
                continue
            positions = staged.next_positions(self._chunk)
            num_left -= positions.stop - positions.start
            if has_run and num_left < 0:
                break
            self._run(staged, positions, step_stats)
            has_run = True

    def _most_urgent(self, step_stats: StepStats) -> Staged | None:
        """Return the next prompt. A more urgent request goes first if a staging row is free."""
        first = self._queue.first
        if first is not None and self._free_rows and self._overtakes(first):
            self._stage(first, step_stats)
        return self._staged[0] if self._staged else None

    def _overtakes(self, first: Generation) -> bool:
        if self._staged and first.request.priority >= self._staged[0].generation.request.priority:
            return False
        num_reserved = sum(staged.generation.num_rows for staged in self._staged)
        return first.num_rows <= self._batch.num_free - num_reserved

    def _stage(self, generation: Generation, step_stats: StepStats) -> None:
        if not self._queue.take(generation):
            return
        step_stats.count_admitted([generation], time.perf_counter())
        row = self._free_rows.pop()
        self._states.fill_rows(row, 1, span=0)
        token_ids = np.array(generation.prompt_ids[:-1], np.int64)
        self._staged.insert(0, Staged(generation, row, token_ids, 0, self._states.buffer_key))

    def _unstage(self, staged: Staged) -> None:
        self._staged.remove(staged)
        self._free_rows.append(staged.row)

    def _restore(self, staged: Staged, step_stats: StepStats) -> None:
        """Restore the next chunks that are in the cache."""
        self._settle(staged)
        if staged.generation.returns_attention(AttentionKind.DECODER):
            return  # the cache has no attention weights
        while self._cache.is_on and not staged.is_done:
            positions = staged.next_positions(self._chunk)
            states = self._cache.get(staged.token_ids[: positions.stop])
            if states is None:
                break
            self._states.restore(staged.row, RowPart(positions, 0), states)
            staged.num_done = positions.stop
            step_stats.num_prefix_hits += positions.stop - positions.start

    def _run(self, staged: Staged, positions: slice, step_stats: StepStats) -> None:
        started = time.perf_counter()
        try:
            self._prefill(staged, positions)
        except Exception as error:
            self._unstage(staged)
            self._fail([staged.generation], error)
            return
        staged.num_done = positions.stop
        if self._cache.is_on:
            parts = self._states.views(staged.row, RowPart(positions, 0))
            self._cache.put(staged.token_ids[: positions.stop], parts)
            step_stats.num_prefix_misses += positions.stop - positions.start
        step_stats.num_prefilled_tokens += positions.stop - positions.start
        step_stats.add_seconds("prefill", started)

    def _prefill(self, staged: Staged, positions: slice) -> None:
        where = staged.row, positions.start, staged.token_ids[positions]
        if not staged.generation.returns_attention(AttentionKind.DECODER):
            self._runner.prefill(*where)
            return
        weights = self._runner.prefill_with_attention(*where)
        store_prompt_attention(staged.generation, weights, positions.stop)

    def _enter(self, staged: Staged) -> None:
        num_tokens = len(staged.token_ids)
        extent = RowExtent(num_tokens, source_tokens=0)
        self._states.copy_row(staged.row, self._batch.num_rows, extent)
        self._unstage(staged)
        self._rows.add(staged.generation, num_tokens)

    def _settle(self, staged: Staged) -> None:
        """Move the row's states to the current buffers."""
        self._states.sync_row_since(staged.row, staged.buffer_key)
        staged.buffer_key = self._states.buffer_key


class SourceAdmission(Admission):
    """Admission for models with a source, and for prompts that the step graph reads token by token.
    A generation gets its row in the step in which it leaves the waiting queue. The prompt of a
    window of sound is prefilled in that step, too: it takes less time than the encoder.
    """

    @property
    def is_due(self) -> bool:
        first = self._queue.first
        if first is None:
            return False
        num_rows, num_free = self._batch.num_rows, self._batch.num_free
        num_waiting = self._queue.num_waiting
        if first.num_rows > num_free:
            return False
        # While more requests wait than there are free rows, sources are encoded for a quarter of
        # the slots at a time, because encoding one alone takes far longer than its share of many.
        if num_rows > 0 and num_free < min(num_waiting, self._batch.slots // 4):
            return False
        if num_waiting < num_rows // _ROWS_PER_AWAITED_SOURCE:
            return time.perf_counter() - first.submitted_at >= _LONGEST_WAIT_FOR_SOURCES
        return True

    def admit(self, step_stats: StepStats) -> None:
        if not self.is_due:
            return
        plain: list[Generation] = []
        for generation in self._queue.take_sources(self._batch.num_free):
            if generation.returns_attention(AttentionKind.ENCODER):
                self._admit([generation], step_stats)  # it is encoded alone
            else:
                plain.append(generation)
        for group in encode_groups(plain, self._config.max_encode_tokens):
            self._admit(group, step_stats)

    def _admit(self, group: list[Generation], step_stats: StepStats) -> None:
        """Set the states of new rows behind the batch. If this fails, the group's requests fail."""
        started = time.perf_counter()
        step_stats.count_admitted(group, started)
        first = self._batch.num_rows
        span = encode_span(group[-1])
        in_use = int(self._batch.source_lengths[:first].max(initial=0))
        try:
            self._states.fit_span(max(in_use, span), first)
            ordered = self._fill(first, group, span, step_stats)
            if span:
                step_stats.add_seconds("encode", started)
            nums_prefilled = self._prefill(first, ordered, step_stats)
        except Exception as error:
            self._fail(group, error)
            return
        for generation, num_prefilled in zip(ordered, nums_prefilled, strict=True):
            self._rows.add(generation, num_prefilled)

    def _prefill(
        self, first: int, generations: list[Generation], step_stats: StepStats
    ) -> list[int]:
        """Prefill the prompts of the rows from `first` on, where the graph can. Return the number
        of prefilled tokens of each row. Equal prompts of a source are computed once.

        Chunks lie on a fixed grid, so what is computed depends on the source and the prompt alone.
        """
        started, chunk = time.perf_counter(), self._config.prefill_chunk
        rows: dict[tuple[Source, TokenIds], int] = {}  # by what they have read
        nums_prefilled = [0] * len(generations)
        for i, generation in enumerate(generations):
            row, num_tokens = first + i, len(generation.prompt_ids) - 1
            if not self._can_prefill(generation):
                continue
            nums_prefilled[i] = num_tokens
            computed = rows.setdefault((generation.request.source, generation.prompt_ids), row)
            if computed != row:
                part = RowPart(slice(num_tokens), 0)
                self._states.restore(row, part, self._states.views(computed, part))
                continue
            token_ids = np.array(generation.prompt_ids[:-1], np.int64)
            for start in range(0, num_tokens, chunk):
                ids = token_ids[start : start + chunk]
                self._runner.prefill(row, start, ids, generation.num_source_tokens)
            step_stats.num_prefilled_tokens += num_tokens
        if any(nums_prefilled):
            step_stats.add_seconds("prefill", started)
        return nums_prefilled

    def _can_prefill(self, generation: Generation) -> bool:
        """Return whether a prompt is prefilled. A run for one token would gain nothing, and the
        attention weights of a prompt are those of its steps.
        """
        return (
            self._runner.can_prefill
            and len(generation.prompt_ids) > 2
            and not generation.returns_attention(AttentionKind.DECODER)
        )

    def _fill(
        self, first: int, group: list[Generation], span: int, step_stats: StepStats
    ) -> list[Generation]:
        """Fill new rows; return the group in the order of its rows, the newly encoded first."""
        states: dict[Source, Sequence[Array]] = {}
        new: list[Generation] = []
        others: list[Generation] = []
        for generation in group:
            source = generation.request.source
            if source in states:
                others.append(generation)
                continue
            # The cache has no attention weights.
            returns_attention = generation.returns_attention(AttentionKind.ENCODER)
            cached = None if returns_attention else self._cache.get(source)
            states[source] = [] if cached is None else cached
            (new if cached is None else others).append(generation)
        if new:
            self._encode(first, new, span)
        for row, generation in enumerate(new, first):
            source = generation.request.source
            states[source] = self._states.views(row, RowPart(slice(0), len(source)))
        for row, generation in enumerate(others, first + len(new)):
            source = generation.request.source
            self._states.restore(row, RowPart(slice(0), len(source)), states[source])
        for generation in new:
            self._cache.put(generation.request.source, states[generation.request.source])
        step_stats.count_encoded(new, others, span)
        return new + others

    def _encode(self, first: int, new: list[Generation], span: int) -> None:
        """Encode sources; a source whose attention is reported is encoded alone."""
        sources = [generation.request.source for generation in new]
        if not new[0].returns_attention(AttentionKind.ENCODER):
            self._runner.encode(first, sources, span)
            return
        store_source_attention(new[0], self._runner.encode_with_attention(first, sources[0], span))


@dataclass(frozen=True)
class SharedParts:
    """The objects that the engines of one bundle share.

    cache: states of prompts or of encoded sources, so that only one engine computes them.
    """

    scheduler: Scheduler
    cache: StateCache

    @classmethod
    def create(cls, manifest: Manifest, config: EngineConfig, graphs: Graphs) -> "SharedParts":
        has_sources = "encode" in manifest.graphs
        max_bytes = config.encoder_cache_bytes if has_sources else config.prefix_cache_bytes
        if manifest.audio is not None and max_bytes:
            max_bytes = max(max_bytes, _CACHED_WINDOWS * _cached_bytes(manifest))
        slots = min(config.slots, graphs.max_rows or config.slots)
        return cls(Scheduler(manifest, config, slots), StateCache(max_bytes, graphs.memory))


def _cached_bytes(manifest: Manifest) -> int:
    """Return what a cached window of sound takes: its features and its states."""
    assert manifest.media_input is not None
    size = row_bytes(manifest.states)
    num_bytes = size.fixed + size.per_source_token * max_source_tokens(manifest)
    return bytes_per_row(manifest.media_input) + num_bytes
