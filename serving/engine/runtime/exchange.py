"""The interface by which decoding steps get their inputs, and the host gets their outputs."""

from collections.abc import Sequence
from typing import Protocol

from serving.engine.arrays import Array
from serving.engine.attention_query import AttentionOutputs
from serving.engine.decoding.scores import Scores, Scoring
from serving.engine.rows import Batch, RowObserver


class Exchange(Protocol):
    """Passes inputs and outputs of runs, in order: `send`, the run itself, `launched`, later
    `receive`. A run may have more rows than are in use.
    """

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        """Return the objects that keep data for each row."""

    @property
    def is_ahead(self) -> bool:
        """Return whether a run was launched whose scores have not been received."""

    @property
    def may_go_ahead(self) -> bool:
        """Return whether another run can be launched before the host has read the last one's
        scores: the device has chosen every row's next token.
        """

    def fit(self, num_rows: int) -> tuple[int, ...]:
        """Allocate arrays for the rows. Arrays that are bound to a graph stay valid until this
        returns another value.
        """

    def inputs(self, num_rows: int) -> dict[str, Array]:
        """Return the inputs of the step graph, except for states."""

    def outputs(self, rows: slice) -> dict[str, Array]:
        """Return its output arrays."""

    def send(self, num_rows: int) -> None:
        """Copy the inputs of the next run to the device."""

    def launched(self, num_rows: int, attention: AttentionOutputs) -> None:
        """Record that a run was launched. attention: its attention weights, f32 [rows, heads,
        positions].
        """

    def receive(self) -> Scores:
        """Wait for the oldest run; return the scores of the current rows. The next run overwrites
        them.
        """

    def abandon(self) -> None:
        """Discard the runs that were launched."""


class HostExchange:
    """The graph reads the batch's own arrays, and the host reads the graph's outputs. A run is
    finished when it was launched.
    """

    may_go_ahead = False  # no run is in progress while the host decides

    def __init__(self, batch: Batch, scoring: Scoring) -> None:
        self._batch, self._scoring = batch, scoring
        self._is_ahead = False
        self._attention: AttentionOutputs = {}

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        return [self._scoring] if isinstance(self._scoring, RowObserver) else []

    @property
    def is_ahead(self) -> bool:
        return self._is_ahead

    def fit(self, num_rows: int) -> tuple[int, ...]:
        return self._scoring.fit(num_rows)

    def inputs(self, num_rows: int) -> dict[str, Array]:
        batch = self._batch
        return {
            "ids": batch.ids[:num_rows],
            "past_lengths": batch.past_lengths[:num_rows],
            "total_lengths": batch.total_lengths[:num_rows],
            "source_lengths": batch.source_lengths[:num_rows],
            **self._scoring.inputs(num_rows),
        }

    def outputs(self, rows: slice) -> dict[str, Array]:
        return self._scoring.outputs(rows)

    def send(self, num_rows: int) -> None:
        pass

    def launched(self, num_rows: int, attention: AttentionOutputs) -> None:
        self._is_ahead, self._attention = True, attention

    def receive(self) -> Scores:
        self._is_ahead = False
        scores = self._scoring.scores(slice(self._batch.num_rows))
        scores.attention = self._attention
        return scores

    def abandon(self) -> None:
        self._is_ahead = False
