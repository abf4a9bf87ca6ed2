"""How decoding steps get their inputs, and how the host gets their outputs."""

from collections.abc import Sequence
from typing import Protocol

from serving.arrays import Array
from serving.engine.attention_query import AttentionOutputs
from serving.engine.decoding.scores import Scores, Scoring
from serving.engine.rows import Batch, Follower


class Exchange(Protocol):
    """Serves runs in their order: for each `send`, the run itself, `launched`, later `receive`. A
    run may be over more rows than there are in use.
    """

    @property
    def followers(self) -> Sequence[Follower]:
        """List what remembers something of each row."""

    @property
    def is_ahead(self) -> bool:
        """Tell whether a run was launched whose scores have not been received."""

    @property
    def may_go_ahead(self) -> bool:
        """Tell whether another run can be launched before the host has seen the last one's scores:
        the device knows every row's next token.
        """

    def fit(self, num_rows: int) -> tuple[int, ...]:
        """Make room for the rows. Arrays bound to a graph hold until this returns another value."""

    def inputs(self, num_rows: int) -> dict[str, Array]:
        """Return what the step graph reads, but for states."""

    def outputs(self, rows: slice) -> dict[str, Array]:
        """Return what it writes."""

    def send(self, num_rows: int) -> None:
        """Bring what the next run reads where it is read."""

    def launched(self, num_rows: int, attention: AttentionOutputs) -> None:
        """Take note of a run. attention: what it tells, f32 [rows, heads, positions]."""

    def receive(self) -> Scores:
        """Wait for the oldest run; return the scores of the rows that there are now. The next run
        overwrites them.
        """

    def abandon(self) -> None:
        """Forget the runs that were launched; nobody needs them."""


class HostExchange:
    """Lets the graph read the batch's own arrays, and write what is read. A run is done when it is
    launched.
    """

    may_go_ahead = False  # there is no run while the host decides

    def __init__(self, batch: Batch, scoring: Scoring) -> None:
        self._batch, self._scoring = batch, scoring
        self._is_ahead = False
        self._attention: AttentionOutputs = {}

    @property
    def followers(self) -> Sequence[Follower]:
        return [self._scoring] if isinstance(self._scoring, Follower) else []

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
        return self._scoring.scores(rows).outputs

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
