"""The model runner of a device: it copies inputs to the device and scores to the host, one small
copy in each direction per step.

The likeliest tokens are copied in every step; other scores only when they are read, for the rows
that need them.

If the device has chosen the next tokens of all rows, the next run is launched before the host has
processed the last one. Meanwhile rows may be removed and replaced, so for each run the original row
of every current row is recorded.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.arrays import Array
from serving.engine.attention_query import AttentionOutputs
from serving.engine.config import EngineConfig
from serving.engine.cuda.device_sampler import CHOICES, PARAMS, DeviceSampler
from serving.engine.cuda.transfer_buffer import NUM_HOST_BUFFERS, ArraySpec, TransferBuffer
from serving.engine.decoding.logits_processors import rows_at_their_end
from serving.engine.decoding.scores import DeviceTokens, Scores
from serving.engine.decoding.search import Search
from serving.engine.rows import Batch, RowObserver
from serving.engine.runtime.graph import Graphs
from serving.engine.runtime.model_runner import LOGP_ONLY, ModelRunner, StepOutputs
from serving.engine.states.memory import StreamMemory

LENGTHS = ("past_lengths", "total_lengths")
WINDOW = ("top_logp", "top_ids", "log_normaliser")


def make_runner(
    manifest: Manifest, graphs: Graphs, batch: Batch, config: EngineConfig, search: Search
) -> ModelRunner:
    """Return the runner for the memory of the graphs. With a shortlist the host always chooses, so
    that the runner is the CPU's, whose arrays the graphs mirror on the device.
    """
    memory = graphs.memory
    if manifest.has_shortlist or not isinstance(memory, StreamMemory):
        return ModelRunner(manifest, graphs, batch, config)
    sampler = DeviceSampler(manifest, batch, memory, graphs.select, search)
    return DeviceModelRunner(manifest, graphs, batch, config, memory, sampler)


@dataclass(slots=True)
class LaunchedRun:
    """A run that was launched.

    number: of the run, from 1.
    rows: i64 [slots], for each current row, its row in the run.
    is_selected: whether the select graph has chosen.
    wait: returns when the run is finished.
    """

    number: int
    rows: Array
    is_selected: bool
    attention: AttentionOutputs
    wait: Callable[[], None]


class DeviceModelRunner(ModelRunner, RowObserver):
    """A model runner that observes the rows of the runs that were launched."""

    def __init__(
        self,
        manifest: Manifest,
        graphs: Graphs,
        batch: Batch,
        config: EngineConfig,
        memory: StreamMemory,
        sampler: DeviceSampler,
    ) -> None:
        super().__init__(manifest, graphs, batch, config)
        self._memory, self._sampler = memory, sampler
        slots, window, num_rows = batch.slots, manifest.window, self._num_rows
        self._table = LogpTable(memory, num_rows, manifest.vocab_size)
        inputs = {name: ArraySpec((slots,), dtype) for name, dtype in PARAMS.items()}
        inputs |= {name: ArraySpec((slots,), "int32") for name in (*LENGTHS, "source_lengths")}
        self._inputs = TransferBuffer(memory, {"ids": ArraySpec((slots, 1), "int64"), **inputs})
        results = {name: ArraySpec((num_rows,), dtype) for name, dtype in CHOICES.items()}
        results |= {"top_logp": ArraySpec((num_rows, window), "float32")}
        results |= {"top_ids": ArraySpec((num_rows, window), "int64")}
        results |= {"log_normaliser": ArraySpec((num_rows,), "float32")}
        self._results = TransferBuffer(memory, results)
        self._runs: deque[LaunchedRun] = deque()

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        return [self._sampler, self]

    @property
    def can_launch_ahead(self) -> bool:
        batch, rows = self._batch, self._batch.num_rows
        num_left = batch.max_generated[:rows] - batch.num_generated[:rows]
        return bool(
            self._sampler.is_independent[:rows].all()
            and not batch.num_forced[:rows].any()
            and not batch.needs_attention[:rows].any()
            and not batch.awaits_scored[:rows].any()
            and (num_left > 1).any()
            and not len(rows_at_their_end(batch, rows))
        )

    def on_move(self, source: int, target: int) -> None:
        for run in self._runs:
            run.rows[target] = run.rows[source]

    def launch(self, num_rows: int, outputs: StepOutputs = LOGP_ONLY) -> None:
        rows = self._pad(num_rows)
        is_selected = self._sampler.is_needed(rows)
        self._upload(rows, is_selected)
        attention = self._run_step(rows, outputs)
        if is_selected:
            self._select(rows)
        self._results.download(self._buffer_index)
        self._table.num_runs += 1
        current_rows = np.arange(self._batch.slots)
        wait = self._memory.mark()
        self._runs.append(
            LaunchedRun(self._table.num_runs, current_rows, is_selected, attention, wait)
        )
        self.has_launched = True
        self._batch.num_ahead += 1

    def receive(self) -> Scores:
        run = self._runs.popleft()
        self.has_launched = bool(self._runs)
        run.wait()
        num_rows = self._batch.num_rows
        rows = run.rows[:num_rows]
        results = self._results.host[(run.number - 1) % NUM_HOST_BUFFERS]
        window = (results[name][rows] for name in WINDOW)
        scores = DeviceScores(self._table, RunRows(rows, run.number), *window)
        scores.attention = run.attention
        if run.is_selected:
            is_chosen = self._sampler.is_served[:num_rows].copy()
            scores.device_tokens = DeviceTokens(
                is_chosen, *(results[name][rows] for name in CHOICES)
            )
        return scores

    def abandon(self) -> None:
        while self._runs:
            with suppress(Exception):  # its result is not needed, but its inputs must not change
                self._runs.popleft().wait()
        super().abandon()

    @property
    def _buffer_index(self) -> int:
        """Return which buffers of the host the next run uses."""
        return self._table.num_runs % NUM_HOST_BUFFERS

    def _step_inputs(self, num_rows: int) -> dict[str, Array]:
        names = ("ids", *LENGTHS, "source_lengths")
        return {name: self._inputs.device[name][:num_rows] for name in names}

    def _step_outputs(self, rows: slice) -> dict[str, Array]:
        window = {name: self._results.device[name][rows] for name in WINDOW}
        return {"logp": self._table.on_device[rows], **window}

    def _upload(self, num_rows: int, is_selected: bool) -> None:
        """Copy the inputs of the next run to the device."""
        batch, buffer_index = self._batch, self._buffer_index
        arrays = self._inputs.host[buffer_index]
        arrays["ids"][:num_rows] = batch.ids[:num_rows]
        arrays["source_lengths"][:num_rows] = batch.source_lengths[:num_rows]
        for name in LENGTHS:
            arrays[name][:num_rows] = getattr(batch, name)[:num_rows] + batch.num_ahead
        if is_selected:
            self._sampler.write(arrays, num_rows, buffer_index)
        if self._runs:
            self._copy_chosen_ids(self._runs[-1], num_rows)
            self._inputs.upload(buffer_index, first="uniform")
        else:
            self._inputs.upload(buffer_index, first="ids")

    def _select(self, num_rows: int) -> None:
        results = self._results.device
        scores = {"logp": self._table.on_device, "log_normaliser": results["log_normaliser"]}
        params = {name: self._inputs.device[name] for name in PARAMS}
        choices = {name: results[name] for name in CHOICES}
        self._sampler.run(num_rows, scores, params, choices)

    def _copy_chosen_ids(self, last: LaunchedRun, num_rows: int) -> None:
        """Give the rows the tokens that the last run has chosen for them."""
        results, ids = self._results.device, self._inputs.device["ids"][:, 0]
        tokens = results["token_ids"] if last.is_selected else results["top_ids"][:, 0]
        self._memory.copy(ids[:num_rows], tokens[:num_rows])
        moved = np.flatnonzero(last.rows[:num_rows] != np.arange(num_rows))
        for row, run_row in zip(moved.tolist(), last.rows[moved].tolist(), strict=True):
            self._memory.copy(ids[row : row + 1], tokens[run_row : run_row + 1])


class LogpTable:
    """The log-probabilities that the step graph writes, and host memory for some of their rows.

    on_device: f32 [rows, vocabulary].
    num_runs: number of runs that have written them.
    """

    def __init__(self, memory: StreamMemory, num_rows: int, vocab_size: int) -> None:
        self.memory = memory
        self.on_device = memory.zeros((num_rows, vocab_size), "float32")
        self.num_runs = 0

    @cached_property
    def on_host(self) -> Array:
        return self.memory.pinned(self.on_device.shape, "float32")

    @cached_property
    def values(self) -> Array:
        """Return host memory for one value of each row."""
        return self.memory.pinned(self.on_device.shape[:1], "float32")


@dataclass(frozen=True, slots=True)
class RunRows:
    """The rows of a run: for each current row, i64, its row in that run; and the run's number."""

    rows: Array
    number: int


class DeviceScores(Scores):
    def __init__(
        self,
        table: LogpTable,
        run_rows: RunRows,
        top_logp: Array,
        top_ids: Array,
        log_normaliser: Array,
    ) -> None:
        super().__init__(table.on_device[: len(top_ids)], top_logp, top_ids, log_normaliser)
        self._table, self._run_rows = table, run_rows

    def of_tokens(self, rows: Array, token_ids: Array) -> Array:
        """Look among the likeliest tokens; copy only the values of others from the device."""
        is_there = self.likeliest_ids[rows] == token_ids[:, None]
        values: Array = self.likeliest_logp[rows, is_there.argmax(axis=1)]
        missing = np.flatnonzero(~is_there.any(axis=1))
        if len(missing) > len(self._table.values):
            values[missing] = super().of_tokens(rows[missing], token_ids[missing])
        elif len(missing):
            values[missing] = self._copy_values(rows[missing], token_ids[missing])
        return values

    def _copy_values(self, rows: Array, token_ids: Array) -> Array:
        values = self._table.values[: len(rows)]
        for i, (row, token_id) in enumerate(zip(rows.tolist(), token_ids.tolist(), strict=True)):
            logp = self._on_device(row)
            self._table.memory.copy(values[i : i + 1], logp[token_id : token_id + 1])
        self._table.memory.mark()()
        return values

    @cached_property
    def _whole_rows(self) -> Array:
        return self._table.on_host[: self.num_rows]

    def _copy_logp(self, rows: Array, to: Array) -> None:
        for row in rows.tolist():
            self._table.memory.copy(to[row], self._on_device(row))
        self._table.memory.mark()()
        self._excluded_logp[rows] = to[rows[:, None], self._excluded]

    def _values(self, rows: Array, token_ids: Array) -> Array:
        values: Array = self.logp_of(np.unique(rows))[rows, token_ids]
        if len(self._excluded):
            places = np.searchsorted(self._excluded, token_ids)
            places = np.minimum(places, len(self._excluded) - 1)
            is_excluded = self._excluded[places] == token_ids
            values = np.where(is_excluded, self._excluded_logp[rows, places], values)
        return values

    @cached_property
    def _excluded_logp(self) -> Array:
        return np.zeros((self.num_rows, len(self._excluded)), np.float32)

    def _on_device(self, row: int) -> Array:
        assert self._run_rows.number == self._table.num_runs, (
            "a later run has overwritten the scores"
        )
        logp: Array = self._table.on_device[self._run_rows.rows[row]]
        return logp
