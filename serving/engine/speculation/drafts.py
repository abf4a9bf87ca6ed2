"""Follows what rows say, drafts what they may say next, and learns how often that came true.

Every draft is compared with what comes, whether or not it is verified: to learn costs no run.
"""

import numpy as np

from serving.arrays import Array
from serving.engine.batch import Batch
from serving.engine.decision import Decision
from serving.engine.generation import Generation
from serving.engine.rows import Follower
from serving.engine.speculation.lookup import NONE, look_up

FIRST_RATE = 0.5  # of a row of which nothing is known
LEARNING_RATE = 1 / 8


class Drafts(Follower):
    """Holds one draft for each row.

    tokens: i64 [slots, count], NONE where nothing is drafted. turn: how many of them rows have had
    the chance to take. is_followed: bool [slots], whose row has taken all of those.
    hit_rates: f64 [slots], how often a row took what was drafted, lately. num_hits: how many tokens
    of these drafts rows have taken.
    """

    def __init__(self, batch: Batch, capacity: int, count: int) -> None:
        self._batch, self._count = batch, count
        self._known = np.zeros((batch.slots, capacity + 1), np.int64)
        self.tokens = np.full((batch.slots, count), NONE, np.int64)
        self.is_followed = np.zeros(batch.slots, bool)
        self.hit_rates = np.zeros(batch.slots)
        self.turn = self.num_hits = 0

    def admit(self, row: int, generation: Generation) -> None:
        given_ids = generation.given_ids
        self._known[row, : len(given_ids)] = given_ids
        self.tokens[row], self.hit_rates[row] = NONE, FIRST_RATE

    def move(self, source: int, target: int) -> None:
        """Rows are only copied by beam searches, which nothing is drafted for."""
        length = self._batch.total_lengths[target]
        self._known[target, :length] = self._known[source, :length]
        for column in (self.tokens, self.is_followed, self.hit_rates):
            column[target] = column[source]

    def advance(self, decision: Decision) -> None:
        rows = np.flatnonzero(decision.is_next)
        taken = decision.token_ids[rows]
        self._known[rows, self._batch.total_lengths[rows]] = taken
        self.is_followed[: len(decision.token_ids)] = False
        if self.turn < self._count:
            self._compare(rows, taken)
        self.turn += 1

    def draw_up(self, num_rows: int) -> None:
        """Draft for the first rows: of each at most so many tokens that its last one, which may be
        forced, is none of them.
        """
        batch, tokens = self._batch, self.tokens[:num_rows]
        tokens[:] = look_up(self._known[:num_rows], batch.total_lengths[:num_rows], self._count)
        room = batch.max_generated[:num_rows] - batch.num_generated[:num_rows] - 2
        room[batch.num_given[:num_rows] > 0] = 0
        tokens[np.arange(self._count) >= room[:, None]] = NONE
        self.turn = self.num_hits = 0

    def drop(self) -> None:
        """Draft nothing."""
        self.turn = self._count

    def num_hoped(self, num_rows: int) -> float:
        """Estimate how many drafted tokens the rows would take: the i-th of a row with the i-th
        power of its rate (Leviathan et al. 2023, equation 1).
        """
        chances = self.hit_rates[:num_rows, None] ** np.arange(1, self._count + 1)
        return float(chances[self.tokens[:num_rows] != NONE].sum())

    def _compare(self, rows: Array, taken: Array) -> None:
        drafted = self.tokens[rows, self.turn]
        is_hit = drafted == taken
        self.is_followed[rows] = is_hit
        self.num_hits += int(is_hit.sum())
        is_drafted = drafted != NONE
        self.hit_rates[rows] += LEARNING_RATE * is_drafted * (is_hit - self.hit_rates[rows])
