"""Copies between host and device: one small copy in each direction per step.

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
from serving.engine.cuda.token_selector import (
    CHOICES,
    NUM_TURNS,
    PARAMS,
    Block,
    Deciders,
    Field,
    Selector,
    StreamMemory,
)
from serving.engine.decoding.logits_processors import rows_at_their_end
from serving.engine.decoding.scores import DeviceTokens, Scores, WholeVocabulary
from serving.engine.decoding.shortlist import Shortlists
from serving.engine.rows import Batch, RowObserver
from serving.engine.runtime.exchange import Exchange, HostExchange
from serving.engine.runtime.graph import Graphs

LENGTHS = ("past_lengths", "total_lengths")


@dataclass(slots=True)
class Flight:
    """A run that was launched.

    rows: i64 [slots], for each current row, its row in the run.
    is_selected: whether the select graph has chosen.
    wait: returns when the run is finished.
    """

    run: int
    rows: Array
    is_selected: bool
    attention: AttentionOutputs
    wait: Callable[[], None]


class DeviceExchange(RowObserver):
    """The exchange with a device. It follows the rows of the runs that were launched. See
    `Exchange`.
    """

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        num_rows: int,
        memory: StreamMemory,
        selector: Selector,
    ) -> None:
        """num_rows: slots, and the staging rows behind them."""
        self._batch, self._memory, self._selector = batch, memory, selector
        slots, window = batch.slots, manifest.window
        self._table = DeviceTable(memory, num_rows, manifest.vocab_size)
        feed = {name: Field((slots,), dtype) for name, dtype in PARAMS.items()}
        feed |= {name: Field((slots,), "int32") for name in (*LENGTHS, "source_lengths")}
        self._feed = Block(memory, {"ids": Field((slots, 1), "int64"), **feed})
        found = {name: Field((num_rows,), dtype) for name, dtype in CHOICES.items()}
        found |= {"top_logp": Field((num_rows, window), "float32")}
        found |= {"top_ids": Field((num_rows, window), "int64")}
        found |= {"log_normaliser": Field((num_rows,), "float32")}
        self._found = Block(memory, found)
        self._flights: deque[Flight] = deque()
        self._is_selected = False

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        return [self._selector, self]

    @property
    def is_ahead(self) -> bool:
        return bool(self._flights)

    @property
    def may_go_ahead(self) -> bool:
        batch, rows = self._batch, self._batch.num_rows
        num_left = batch.max_generated[:rows] - batch.num_generated[:rows]
        return bool(
            self._selector.is_independent[:rows].all()
            and not batch.num_forced[:rows].any()
            and not batch.needs_attention[:rows].any()
            and (num_left > 1).any()
            and not len(rows_at_their_end(batch, rows))
        )

    def on_move(self, source: int, target: int) -> None:
        for flight in self._flights:
            flight.rows[target] = flight.rows[source]

    def fit(self, num_rows: int) -> tuple[int, ...]:
        return ()

    def inputs(self, num_rows: int) -> dict[str, Array]:
        names = ("ids", *LENGTHS, "source_lengths")
        return {name: self._feed.device[name][:num_rows] for name in names}

    def outputs(self, rows: slice) -> dict[str, Array]:
        names = ("top_logp", "top_ids", "log_normaliser")
        found = {name: self._found.device[name][rows] for name in names}
        return {"logp": self._table.on_device[rows], **found}

    def send(self, num_rows: int) -> None:
        batch, turn = self._batch, self._turn
        arrays = self._feed.host[turn]
        arrays["ids"][:num_rows] = batch.ids[:num_rows]
        arrays["source_lengths"][:num_rows] = batch.source_lengths[:num_rows]
        for name in LENGTHS:
            arrays[name][:num_rows] = getattr(batch, name)[:num_rows] + batch.num_ahead
        self._is_selected = self._selector.is_needed(num_rows)
        if self._is_selected:
            self._selector.write(arrays, num_rows, turn)
        if self._flights:
            self._carry_ids(self._flights[-1], num_rows)
            self._feed.upload(turn, first="uniform")
        else:
            self._feed.upload(turn, first="ids")

    def launched(self, num_rows: int, attention: AttentionOutputs) -> None:
        if self._is_selected:
            self._select(num_rows)
        self._found.download(self._turn)
        self._table.run += 1
        rows = np.arange(self._batch.slots)
        wait = self._memory.mark()
        self._flights.append(Flight(self._table.run, rows, self._is_selected, attention, wait))

    def receive(self) -> Scores:
        flight = self._flights.popleft()
        flight.wait()
        num_rows = self._batch.num_rows
        rows = flight.rows[:num_rows]
        found = self._found.host[(flight.run - 1) % NUM_TURNS]
        window = (found[name][rows] for name in ("top_logp", "top_ids", "log_normaliser"))
        scores = DeviceScores(self._table, Place(rows, flight.run), *window)
        scores.attention = flight.attention
        if flight.is_selected:
            is_chosen = self._selector.is_served[:num_rows].copy()
            scores.device_tokens = DeviceTokens(is_chosen, *(found[name][rows] for name in CHOICES))
        return scores

    def abandon(self) -> None:
        while self._flights:
            with suppress(Exception):  # its result is not needed, but its inputs must not change
                self._flights.popleft().wait()

    @property
    def _turn(self) -> int:
        return self._table.run % NUM_TURNS

    def _select(self, num_rows: int) -> None:
        found = self._found.device
        scores = {"logp": self._table.on_device, "log_normaliser": found["log_normaliser"]}
        params = {name: self._feed.device[name] for name in PARAMS}
        to = {name: found[name] for name in CHOICES}
        self._selector.run(num_rows, scores, params, to)

    def _carry_ids(self, last: Flight, num_rows: int) -> None:
        """Give the rows the tokens that the last run has chosen for them."""
        found, ids = self._found.device, self._feed.device["ids"][:, 0]
        tokens = found["token_ids"] if last.is_selected else found["top_ids"][:, 0]
        self._memory.copy(ids[:num_rows], tokens[:num_rows])
        moved = np.flatnonzero(last.rows[:num_rows] != np.arange(num_rows))
        for row, before in zip(moved.tolist(), last.rows[moved].tolist(), strict=True):
            self._memory.copy(ids[row : row + 1], tokens[before : before + 1])


class DeviceTable:
    """The log-probabilities that the step graph writes, and host memory for some of their rows.

    on_device: f32 [rows, vocabulary].
    run: number of runs that have written them.
    """

    def __init__(self, memory: StreamMemory, num_rows: int, vocab_size: int) -> None:
        self.memory = memory
        self.on_device = memory.zeros((num_rows, vocab_size), "float32")
        self.run = 0

    @cached_property
    def on_host(self) -> Array:
        return self.memory.pinned(self.on_device.shape, "float32")

    @cached_property
    def values(self) -> Array:
        """Return host memory for one value of each row."""
        return self.memory.pinned(self.on_device.shape[:1], "float32")


@dataclass(frozen=True, slots=True)
class Place:
    """The rows of a run: for each current row, i64, its row in that run."""

    rows: Array
    run: int


class DeviceScores(Scores):
    def __init__(
        self,
        table: DeviceTable,
        place: Place,
        top_logp: Array,
        top_ids: Array,
        log_normaliser: Array,
    ) -> None:
        super().__init__(table.on_device[: len(top_ids)], top_logp, top_ids, log_normaliser)
        self._table, self._place = table, place

    def of_tokens(self, rows: Array, token_ids: Array) -> Array:
        """Look among the likeliest; bring the others alone."""
        is_there = self.likeliest_ids[rows] == token_ids[:, None]
        values: Array = self.likeliest_logp[rows, is_there.argmax(axis=1)]
        missing = np.flatnonzero(~is_there.any(axis=1))
        if len(missing) > len(self._table.values):
            values[missing] = super().of_tokens(rows[missing], token_ids[missing])
        elif len(missing):
            values[missing] = self._brought(rows[missing], token_ids[missing])
        return values

    def _brought(self, rows: Array, token_ids: Array) -> Array:
        values = self._table.values[: len(rows)]
        for i, (row, token_id) in enumerate(zip(rows.tolist(), token_ids.tolist(), strict=True)):
            of_row = self._on_device(row)
            self._table.memory.copy(values[i : i + 1], of_row[token_id : token_id + 1])
        self._table.memory.mark()()
        return values

    @cached_property
    def _whole_rows(self) -> Array:
        return self._table.on_host[: self.num_rows]

    def _read(self, rows: Array, to: Array) -> None:
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
        assert self._place.run == self._table.run, "a later run has overwritten the scores"
        of_row: Array = self._table.on_device[self._place.rows[row]]
        return of_row


def make_exchange(
    manifest: Manifest, batch: Batch, graphs: Graphs, deciders: Deciders, num_rows: int
) -> Exchange:
    """Return the exchange of scores and tokens between host and device.

    num_rows: slots, and the staging rows behind them for prompts in progress.
    """
    memory = graphs.memory
    if manifest.has_shortlist:
        return HostExchange(batch, Shortlists(manifest, num_rows))
    if not isinstance(memory, StreamMemory):
        return HostExchange(batch, WholeVocabulary(manifest, num_rows))
    selector = Selector(manifest, batch, memory, graphs.select, deciders)
    return DeviceExchange(manifest, batch, num_rows, memory, selector)
