"""Reads scores that a device holds: the likeliest tokens come with every step, all others only when
they are asked for, and only of the rows asked for.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.arrays import Array
from serving.engine.exchange.blocks import StreamMemory
from serving.engine.scores import Scores


class DeviceTable:
    """Holds the log-probabilities that the step graph writes, and room on the host for rows of
    them.

    on_device: f32 [rows, vocabulary]. run: counts the runs that have written them.
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
        """Return room for one value of each row."""
        return self.memory.pinned(self.on_device.shape[:1], "float32")


@dataclass(frozen=True, slots=True)
class Place:
    """Says which rows of which run are meant: of each row now, i64, what it was in that run."""

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
        self._is_read = np.zeros(len(top_ids), bool)

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

    def _read(self, rows: Array) -> tuple[Array, Array]:
        logp = self._table.on_host[: self.num_rows]
        missing = np.unique(rows[~self._is_read[rows]])
        if len(missing):
            for row in missing.tolist():
                self._table.memory.copy(logp[row], self._on_device(row))
            self._table.memory.mark()()
            self._is_read[missing] = True
            self._excluded_logp[missing] = logp[missing[:, None], self._excluded]
            logp[missing[:, None], self._excluded] = -np.inf
        return logp, self._excluded_logp

    @cached_property
    def _excluded_logp(self) -> Array:
        return np.zeros((self.num_rows, len(self._excluded)), np.float32)

    def _on_device(self, row: int) -> Array:
        assert self._place.run == self._table.run, "a later run has overwritten the scores"
        of_row: Array = self._table.on_device[self._place.rows[row]]
        return of_row
