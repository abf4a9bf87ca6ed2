"""Follows what rows say, drafts what they may say next, and learns how often that came true.

Every draft is compared with what comes, whether or not it is verified: to learn costs no run.
"""

from dataclasses import dataclass, field

import numpy as np

from serving.engine.batch import Batch
from serving.engine.decision import Decision
from serving.engine.generation import Generation
from serving.engine.rows import Follower
from serving.engine.speculation.lookup import Lookup

FIRST_RATE = 0.5  # of a row of which nothing is known
LEARNING_RATE = 1 / 8


@dataclass(slots=True, eq=False)
class Draft:
    """Holds what one row may say next.

    tokens: none where nothing is known. place: what the row was when they were drafted. rate: how
    often the row took what was drafted, lately. is_followed: whether it has taken all that it has
    had the chance to take.
    """

    lookup: Lookup
    place: int = 0
    tokens: list[int] = field(default_factory=list)
    rate: float = FIRST_RATE
    is_followed: bool = False

    @property
    def num_hoped(self) -> float:
        """Estimate how many of the tokens the row would take: the i-th with the i-th power of the
        rate (Leviathan et al. 2023, equation 1).
        """
        return sum(self.rate ** (i + 1) for i in range(len(self.tokens)))

    def take(self, token_id: int, turn: int) -> bool:
        """Let the row say a token, after so many of the draft; return whether it was drafted."""
        self.lookup.add(token_id)
        if turn >= len(self.tokens):
            self.is_followed = False
            return False
        self.is_followed = self.tokens[turn] == token_id
        self.rate += LEARNING_RATE * (self.is_followed - self.rate)
        return self.is_followed


class Drafts(Follower):
    """Holds one draft for each row.

    turn: how many of their tokens rows have had the chance to take. num_hits: how many they took.
    """

    def __init__(self, batch: Batch, max_tokens: int) -> None:
        self._batch, self._max_tokens = batch, max_tokens
        self._drafts: dict[int, Draft] = {}
        self.turn = self.num_hits = 0

    @property
    def rows(self) -> list[Draft]:
        """List the drafts of all rows, in their order."""
        return [self._drafts[row] for row in range(self._batch.num_rows)]

    def admit(self, row: int, generation: Generation) -> None:
        known = generation.given_ids[: self._batch.total_lengths[row]]
        self._drafts[row] = Draft(Lookup(known))

    def copy(self, source: int, target: int) -> None:
        """Share it: only beam searches copy rows, and nothing is drafted beside them."""
        self._drafts[target] = self._drafts[source]

    def move(self, source: int, target: int) -> None:
        self._drafts[target] = self._drafts.pop(source)

    def forget(self, row: int) -> None:
        del self._drafts[row]

    def advance(self, decision: Decision) -> None:
        for row in np.flatnonzero(decision.is_next).tolist():
            self.num_hits += self._drafts[row].take(int(decision.token_ids[row]), self.turn)
        self.turn += 1

    def draw_up(self) -> float:
        """Draft for all rows; return how many tokens they may be hoped to take. A row's last one,
        which may be forced, is in no draft, nor are tokens given in advance.
        """
        batch = self._batch
        num_rows = batch.num_rows
        num_left = (batch.max_generated[:num_rows] - batch.num_generated[:num_rows]).tolist()
        self.turn = self.num_hits = 0
        num_hoped = 0.0
        for row, draft in enumerate(self.rows):
            room = 0 if batch.num_given[row] else min(num_left[row] - 2, self._max_tokens)
            draft.place, draft.tokens = row, draft.lookup.draft(room) if room > 0 else []
            num_hoped += draft.num_hoped
        return num_hoped

    def drop(self) -> None:
        """Draft nothing."""
        for draft in self._drafts.values():
            draft.tokens = []
