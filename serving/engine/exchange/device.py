"""Exchanges numbers with a device: one small copy up and one down for each step, and of the scores
no more than is asked for.

Where the device knows all rows' next tokens, a run follows the one before without the host, which
decides about that one meanwhile. Rows may leave in between, and others take their places: of each
run it is remembered which of its rows each row was.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.attention.step import Told
from serving.engine.batch import Batch
from serving.engine.exchange.blocks import NUM_TURNS, Block, Field, StreamMemory
from serving.engine.exchange.scores import DeviceScores, DeviceTable, Place
from serving.engine.exchange.selector import CHOICES, PARAMS, Selector
from serving.engine.processing.endings import rows_at_their_end
from serving.engine.rows import Follower
from serving.engine.scores import Chosen, Scores

LENGTHS = ("past_lengths", "total_lengths")


@dataclass(slots=True)
class Flight:
    """Holds a run that was launched.

    rows: i64 [slots], of each row now, which row of the run it was.
    is_selected: whether the select graph has chosen.
    wait: returns when it is done.
    """

    run: int
    rows: Array
    is_selected: bool
    attention: Told
    wait: Callable[[], None]


class DeviceExchange(Follower):
    """Follows the rows for the runs that were launched. See `Exchange`."""

    def __init__(
        self,
        manifest: Manifest,
        batch: Batch,
        num_rows: int,
        memory: StreamMemory,
        selector: Selector,
    ) -> None:
        """num_rows: slots, and rows behind them for prompts in progress."""
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
    def followers(self) -> Sequence[Follower]:
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
            and not batch.num_given[:rows].any()
            and not batch.needs_attention[:rows].any()
            and (num_left > 1).any()
            and not len(rows_at_their_end(batch, rows))
        )

    def move(self, source: int, target: int) -> None:
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

    def launched(self, num_rows: int, attention: Told) -> None:
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
            scores.chosen = Chosen(is_chosen, *(found[name][rows] for name in CHOICES))
        return scores

    def abandon(self) -> None:
        while self._flights:
            with suppress(Exception):  # nobody asks how it went, but what it reads must not change
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
        """Give the rows the tokens that the last run has found for them."""
        found, ids = self._found.device, self._feed.device["ids"][:, 0]
        tokens = found["token_ids"] if last.is_selected else found["top_ids"][:, 0]
        self._memory.copy(ids[:num_rows], tokens[:num_rows])
        moved = np.flatnonzero(last.rows[:num_rows] != np.arange(num_rows))
        for row, before in zip(moved.tolist(), last.rows[moved].tolist(), strict=True):
            self._memory.copy(ids[row : row + 1], tokens[before : before + 1])
