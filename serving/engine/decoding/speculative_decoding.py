"""Speculative decoding (Leviathan et al., 2023), with drafts from prompt lookup (Saxena, 2023).

Drafts come from the text itself: summaries, edits and loops repeat their prompt or themselves. One
run scores what follows each drafted token, bit for bit as single steps would. Each token is then
chosen as in any step, from the same scores; where it equals the draft, the next one is scored
already. So the output is the same, greedy or sampled, and nothing is accepted by chance.

Every draft is compared with what comes, verified or not: learning costs no run. Keys and values of
rejected tokens lie beyond the row's length, where nothing reads, and are overwritten.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import VERIFY, WANTS_LOGP, Manifest
from serving.engine.config import EngineConfig
from serving.engine.decoding.scores import Scores, WholeVocabulary
from serving.engine.decoding.speculation_costs import Costs
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Decision, Follower
from serving.engine.runtime.graph import Graph, Run
from serving.engine.states.kind import NEXT
from serving.engine.states.store import StateStore

LENGTHS = (3, 2)  # of what must have come before, the first that has


class Lookup:
    """Knows what one row has read and said, and where its last tokens came before."""

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._tokens: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}
        for token_id in token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        tokens, place = self._tokens, len(self._tokens)
        for length in LENGTHS:
            if place >= length:
                self._following[tuple(tokens[-length:])] = place
        tokens.append(token_id)

    def draft(self, count: int) -> list[int]:
        """Return so many tokens, those that followed the last time that the row's last ones came
        before; none if they never did. Where that was less than `count` tokens ago they are taken
        to go round.
        """
        tokens = self._tokens
        for length in LENGTHS:
            place = self._following.get(tuple(tokens[-length:]))
            if place is not None:
                return (tokens[place : place + count] * count)[:count]
        return []


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


class Verifier:
    """Runs rows with their drafts.

    num_tokens: of a row in a run: the one it has taken last, then a draft.
    """

    def __init__(
        self, manifest: Manifest, graph: Graph, batch: Batch, states: StateStore, max_rows: int
    ) -> None:
        self.num_tokens = manifest.num_verified
        self._outputs = [spec.name for spec in manifest.graphs[VERIFY].outputs]
        self._graph, self._batch, self._states = graph, batch, states
        self._ids = np.zeros((max_rows, self.num_tokens), np.int64)
        self._scoring = WholeVocabulary(manifest, max_rows * self.num_tokens)
        self._bound: dict[tuple[int, bool], Run] = {}

    def launch(self, drafts: Sequence[Draft], wants_logp: bool) -> None:
        """Run all rows. What is missing to a draft is filled up with any tokens."""
        num_rows = len(drafts)
        self._ids[:num_rows, :1] = self._batch.ids[:num_rows]
        for row, draft in enumerate(drafts):
            self._ids[row, 1 : 1 + len(draft.tokens)] = draft.tokens
        key = num_rows, wants_logp
        if key not in self._bound:
            self._bound[key] = self._graph.bind(*self._arrays(*key))
        self._bound[key]()
        self._batch.num_ahead += self.num_tokens

    def scores(self, drafts: Sequence[Draft], turn: int) -> Scores:
        """Return what was said of the rows that there are now, after so many tokens of drafts."""
        places, count = [draft.place for draft in drafts], self.num_tokens
        if places == list(range(len(places))):
            return self._scoring.scores(slice(turn, len(places) * count, count))
        return self._scoring.scores(np.array(places) * count + turn)

    def _arrays(self, num_rows: int, wants_logp: bool) -> tuple[dict[str, Array], dict[str, Array]]:
        states = self._states.inputs(0, num_rows)
        inputs: dict[str, Array] = {
            "ids": self._ids[:num_rows],
            "past_lengths": self._batch.past_lengths[:num_rows],
            WANTS_LOGP: np.array(wants_logp),
            **states,
        }
        outputs = {name: states[name.partition(NEXT)[0]] for name in self._outputs if NEXT in name}
        outputs |= self._scoring.scores(slice(num_rows * self.num_tokens)).outputs
        if not wants_logp:
            del outputs["logp"]
        return inputs, outputs


MAX_ROWS = 8  # at 16 a run of four tokens each takes three times as long as one of one each


class Speculation:
    """Drafts for all rows of a batch, or for none of them.

    is_verifying: whether the last run has scored tokens that rows have not taken yet.
    """

    def __init__(
        self,
        manifest: Manifest,
        graph: Graph,
        batch: Batch,
        states: StateStore,
        config: EngineConfig,
    ) -> None:
        """graph: the bundle's graph ``verify``."""
        self._batch = batch
        num_tokens = manifest.num_verified
        self._max_rows = min(MAX_ROWS, batch.slots, config.max_step_tokens // num_tokens)
        self._drafts = Drafts(batch, num_tokens - 1)
        self._verifier = Verifier(manifest, graph, batch, states, self._max_rows)
        self._costs = Costs()
        self.is_verifying = self._has_verified = False

    @property
    def followers(self) -> Sequence[Follower]:
        return [self._drafts]

    @property
    def num_hits(self) -> int:
        """Count the drafted tokens that were taken since the last run."""
        return self._drafts.num_hits

    def is_worthwhile(self) -> bool:
        """Draft for the rows, and tell whether to verify that should save time."""
        batch, num_rows, self._has_verified = self._batch, self._batch.num_rows, False
        cannot_draft = batch.is_beam[:num_rows] | batch.needs_attention[:num_rows]
        if num_rows > self._max_rows or cannot_draft.any():
            self._drafts.drop()
            return False
        return self._costs.pays(num_rows, self._drafts.draw_up())

    def launch(self, wants_logp: bool) -> int:
        """Run the rows with their drafts; return how many tokens were drafted."""
        drafts = self._drafts.rows
        self._verifier.launch(drafts, wants_logp)
        self.is_verifying = self._has_verified = True
        return sum(len(draft.tokens) for draft in drafts)

    def note_step(self, num_rows: int, seconds: float) -> None:
        """Take note of how long a step over so many rows took."""
        if num_rows <= self._max_rows:
            self._costs.note(self._has_verified, num_rows, seconds)

    def goes_on(self) -> bool:
        """Tell whether the last run has scored more tokens of some row."""
        if self.is_verifying and any(draft.is_followed for draft in self._drafts.rows):
            return True
        self.abandon()
        return False

    def scores(self) -> Scores:
        """Return what the run said of the rows' next tokens."""
        drafts = self._drafts.rows
        scores = self._verifier.scores(drafts, self._drafts.turn)
        if self._drafts.turn:
            scores.is_next = np.array([draft.is_followed for draft in drafts])
        return scores

    def abandon(self) -> None:
        """Forget what else was run for the rows."""
        if self.is_verifying:
            self.is_verifying = False
            self._batch.num_ahead = 0
