"""Speculative decoding (Leviathan et al., 2023), with drafts from prompt lookup (Saxena, 2023).

Drafts are copied from the text itself: summaries, edits and loops repeat their prompt or
themselves. One run scores the token after each drafted token, bit for bit like single steps. Each
token is then chosen as in any step, from the same scores; if it equals the draft, the next token is
already scored. So the output is the same, greedy or sampled.

Every draft is compared with the generated tokens, verified or not, so learning costs no run. Keys
and values of rejected tokens lie beyond the row's length, are never read, and are overwritten.

The durations of steps are measured: verifying a draft saves time only if it takes little longer
than a normal step. The graph that verifies has its own weights. If these and the step graph's do
not fit into the processor's cache together, the steps after a verification are slow too: up to
twice as slow with small models. This counts as a part of the cost of a verification.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from serving.bundle.manifest import LOGITS, LOGP, VERIFY, WANTS_LOGP, Manifest
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.decoding.scores import Scores, allocate_window
from serving.engine.generation import Generation
from serving.engine.rows import Batch, Decision, RowObserver
from serving.engine.runtime.graph import Graph, Run
from serving.engine.states.kind import NEXT
from serving.engine.states.store import StateStore

LENGTHS = (3, 2)  # numbers of last tokens to look up, the longest match first
FIRST_RATE = 0.5  # of a new row's drafted tokens, that it takes
LEARNING_RATE = 1 / 8  # the rate follows about the last eight tokens
PACE = 1.03  # step up or down towards each measurement, which converges to the median
PATIENCE = 100  # after this many refused drafts one is verified, to measure again
LEAST_GAIN = 1.1  # so that it also pays for the search for drafts
NUM_AFTER = 2  # steps that a verification slows down
LONGEST = 8  # verifications that are measured together
# At 16 rows, a run of four tokens each takes three times as long as a run of one token each.
MAX_ROWS = 8


class Lookup:
    """The tokens that one row has read and generated, and the earlier positions of its
    last tokens.
    """

    def __init__(self, token_ids: Iterable[int]) -> None:
        self._tokens: list[int] = []
        self._following: dict[tuple[int, ...], int] = {}
        for token_id in token_ids:
            self.add(token_id)

    def add(self, token_id: int) -> None:
        tokens, position = self._tokens, len(self._tokens)
        for length in LENGTHS:
            if position >= length:
                self._following[tuple(tokens[-length:])] = position
        tokens.append(token_id)

    def draft(self, count: int) -> list[int]:
        """Return `count` tokens: those that followed the previous occurrence of the row's last
        tokens; none if there is no such occurrence. If it is less than `count` tokens ago, they are
        repeated.
        """
        tokens = self._tokens
        for length in LENGTHS:
            position = self._following.get(tuple(tokens[-length:]))
            if position is not None:
                return (tokens[position : position + count] * count)[:count]
        return []


@dataclass(slots=True, eq=False)
class Draft:
    """The draft of one row.

    tokens: empty if there is no draft.
    row: its row in the run that verifies it.
    rate: recent fraction of drafted tokens that the row took.
    is_accepted: whether it has taken all drafted tokens so far.
    """

    lookup: Lookup
    row: int = 0
    tokens: list[int] = field(default_factory=list)
    rate: float = FIRST_RATE
    is_accepted: bool = False

    @property
    def num_expected(self) -> float:
        """Return the expected number of accepted tokens: the i-th is accepted with the i-th power
        of the rate (Leviathan et al. 2023, equation 1).
        """
        return sum(self.rate ** (i + 1) for i in range(len(self.tokens)))

    def take(self, token_id: int, turn: int) -> bool:
        """Compare the row's next token, after `turn` tokens of the draft; return whether it was
        drafted.
        """
        self.lookup.add(token_id)
        if turn >= len(self.tokens):
            self.is_accepted = False
            return False
        self.is_accepted = self.tokens[turn] == token_id
        self.rate += LEARNING_RATE * (self.is_accepted - self.rate)
        return self.is_accepted


class Drafts(RowObserver):
    """One draft for each row.

    turn: number of drafted tokens that rows could have taken.
    num_hits: number of tokens that they took.
    """

    def __init__(self, batch: Batch, max_tokens: int) -> None:
        self._batch, self._max_tokens = batch, max_tokens
        self._drafts: dict[int, Draft] = {}
        self.turn = self.num_hits = 0

    @property
    def rows(self) -> list[Draft]:
        """Return the drafts of all rows, in their order."""
        return [self._drafts[row] for row in range(self._batch.num_rows)]

    def on_add(self, row: int, generation: Generation) -> None:
        token_ids = generation.prefix_ids[: self._batch.total_lengths[row]]
        self._drafts[row] = Draft(Lookup(token_ids))

    def on_copy(self, source: int, target: int) -> None:
        """Share the draft: only beam searches copy rows, and they have no drafts."""
        self._drafts[target] = self._drafts[source]

    def on_move(self, source: int, target: int) -> None:
        self._drafts[target] = self._drafts.pop(source)

    def on_remove(self, row: int) -> None:
        del self._drafts[row]

    def on_step(self, decision: Decision) -> None:
        for row in np.flatnonzero(decision.is_next).tolist():
            self.num_hits += self._drafts[row].take(int(decision.token_ids[row]), self.turn)
        self.turn += 1

    def make_drafts(self) -> float:
        """Make drafts for all rows; return the expected number of accepted tokens. A row's last
        token, which may be forced, and forced tokens are not drafted.
        """
        batch = self._batch
        num_rows = batch.num_rows
        num_left = (batch.max_generated[:num_rows] - batch.num_generated[:num_rows]).tolist()
        self.turn = self.num_hits = 0
        num_expected = 0.0
        for row, draft in enumerate(self.rows):
            room = 0 if batch.num_forced[row] else min(num_left[row] - 2, self._max_tokens)
            draft.row, draft.tokens = row, draft.lookup.draft(room) if room > 0 else []
            num_expected += draft.num_expected
        return num_expected

    def drop(self) -> None:
        """Remove all drafts."""
        for draft in self._drafts.values():
            draft.tokens = []


class DraftVerifier:
    """Runs rows with their drafts.

    num_tokens: tokens of a row in one run: its last token, then a draft.
    """

    def __init__(
        self, manifest: Manifest, graph: Graph, batch: Batch, states: StateStore, max_rows: int
    ) -> None:
        self.num_tokens = manifest.num_verified
        self._outputs = [spec.name for spec in manifest.graphs[VERIFY].outputs]
        self._graph, self._batch, self._states = graph, batch, states
        self._ids = np.zeros((max_rows, self.num_tokens), np.int64)
        num_places, scores = max_rows * self.num_tokens, manifest.scores
        scored = np.zeros((num_places, int(scores.shape[1])), np.float32)
        self._are_logits = scores.name == LOGITS
        self._scores = {scores.name: scored, **allocate_window(manifest, num_places)}
        self._whole_rows = np.zeros((num_places, manifest.vocab_size), np.float32)
        self._bound: dict[tuple[int, bool], Run] = {}

    def launch(self, drafts: Sequence[Draft], wants_logp: bool) -> None:
        """Run all rows. Short drafts are padded with arbitrary tokens."""
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
        """Return the scores of the current rows after `turn` tokens of their drafts."""
        count = self.num_tokens
        rows_of_run = [draft.row for draft in drafts]
        rows: slice | Array = np.array(rows_of_run) * count + turn
        if rows_of_run == list(range(len(drafts))):  # then the arrays need no copies
            rows = slice(turn, len(drafts) * count, count)
        scored, *window = (array[rows] for array in self._scores.values())
        memory = self._whole_rows[: len(scored)]
        return Scores(scored, *window, are_logits=self._are_logits, memory=memory)

    def _arrays(self, num_rows: int, wants_logp: bool) -> tuple[dict[str, Array], dict[str, Array]]:
        states = self._states.inputs(0, num_rows)
        inputs: dict[str, Array] = {
            "ids": self._ids[:num_rows],
            "past_lengths": self._batch.past_lengths[:num_rows],
            WANTS_LOGP: np.array(wants_logp),
            **states,
        }
        outputs = {name: states[name.partition(NEXT)[0]] for name in self._outputs if NEXT in name}
        outputs |= {
            name: array[: num_rows * self.num_tokens] for name, array in self._scores.items()
        }
        if not wants_logp:
            outputs.pop(LOGP, None)  # it is not computed
        return inputs, outputs


class Costs:
    """Seconds of steps, for each number of rows: of the run, and of the host's work for
    each token.
    """

    def __init__(self) -> None:
        self._of_rows: dict[int, Cost] = {}
        self._last = Cost()

    def record(self, is_verified: bool, num_rows: int, seconds: float) -> None:
        """Record the duration of a step."""
        cost = self._of_rows.setdefault(num_rows, Cost())
        if cost is not self._last:
            self._last.discard_series()
            self._last = cost
        cost.record(is_verified, seconds)

    def is_worthwhile(self, num_rows: int, num_expected: float) -> bool:
        """Return whether the expected tokens are worth the longer step. Unmeasured cases
        are tried.
        """
        if not num_expected:
            return False
        cost = self._of_rows.get(num_rows)
        return cost is None or cost.is_worthwhile((num_rows + num_expected) / num_rows)


@dataclass(slots=True, eq=False)
class Cost:
    """Median seconds of a step, and of a verification; None if unknown.

    series: seconds of consecutive verifications, including the slower steps after them.
    num_after: number of steps since the last of them.
    num_refused: number of drafts that were not verified since the last attempt.
    """

    plain: float | None = None
    verified: float | None = None
    series: list[float] = field(default_factory=list)
    num_after: int = 0
    num_refused: int = 0
    is_new: bool = True

    def record(self, is_verified: bool, seconds: float) -> None:
        if is_verified:
            self.series.append(seconds)
            self.num_after = 0
        elif not self.series:
            self.plain = _follow_median(self.plain, seconds)
        else:
            self.num_after += 1
            self.series[-1] += seconds - (self.plain or seconds)
        if self.num_after == NUM_AFTER or len(self.series) == LONGEST:
            self._update_median()

    def discard_series(self) -> None:
        """Discard verifications whose following steps were not all measured."""
        self.series, self.num_after = [], 0

    def is_worthwhile(self, gain: float) -> bool:
        """Return whether a verification saves time if it multiplies a step's tokens by `gain`."""
        if self.plain is None or self.verified is None:
            return self.plain is not None
        is_worth_it = gain * self.plain > LEAST_GAIN * self.verified
        self.num_refused = 0 if is_worth_it else (self.num_refused + 1) % PATIENCE
        return self.num_refused == 0

    def _update_median(self) -> None:
        """Update the median; the first verification of all is skipped because it takes longer than
        others.
        """
        if not self.is_new:
            self.verified = _follow_median(self.verified, sum(self.series) / len(self.series))
        self.is_new = False
        self.discard_series()


def _follow_median(median: float | None, seconds: float) -> float:
    if median is None:
        return seconds
    return median * PACE if seconds > median else median / PACE


class Speculation:
    """Makes drafts for all rows of a batch, or for none of them.

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
        self._verifier = DraftVerifier(manifest, graph, batch, states, self._max_rows)
        self._costs = Costs()
        self.is_verifying = self._has_verified = False

    @property
    def row_observers(self) -> Sequence[RowObserver]:
        return [self._drafts]

    @property
    def num_hits(self) -> int:
        """Return the number of drafted tokens that were accepted since the last run."""
        return self._drafts.num_hits

    def is_worthwhile(self) -> bool:
        """Make drafts for the rows, and return whether verifying them should save time."""
        batch, num_rows, self._has_verified = self._batch, self._batch.num_rows, False
        cannot_draft = batch.is_beam[:num_rows] | batch.needs_attention[:num_rows]
        if num_rows > self._max_rows or cannot_draft.any():
            self._drafts.drop()
            return False
        return self._costs.is_worthwhile(num_rows, self._drafts.make_drafts())

    def launch(self, wants_logp: bool) -> int:
        """Run the rows with their drafts; return the number of drafted tokens."""
        drafts = self._drafts.rows
        self._verifier.launch(drafts, wants_logp)
        self.is_verifying = self._has_verified = True
        return sum(len(draft.tokens) for draft in drafts)

    def record_step(self, num_rows: int, seconds: float) -> None:
        """Record the duration of a step over `num_rows` rows."""
        if num_rows <= self._max_rows:
            self._costs.record(self._has_verified, num_rows, seconds)

    def has_more_scores(self) -> bool:
        """Return whether the last run has scored more tokens of some row."""
        if self.is_verifying and any(draft.is_accepted for draft in self._drafts.rows):
            return True
        self.abandon()
        return False

    def scores(self) -> Scores:
        """Return the scores of the rows' next tokens from the last run."""
        drafts = self._drafts.rows
        scores = self._verifier.scores(drafts, self._drafts.turn)
        if self._drafts.turn:
            scores.is_next = np.array([draft.is_accepted for draft in drafts])
        return scores

    def abandon(self) -> None:
        """Discard the remaining scores of the last run."""
        if self.is_verifying:
            self.is_verifying = False
            self._batch.num_ahead = 0
