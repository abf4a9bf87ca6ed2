"""Lets rows take several tokens of one run, where drafts have foreseen them (speculative decoding,
Leviathan et al. 2023).

Each token is decided on as in any step, from the same scores; where it is the one that was drafted,
what follows it has been scored already. So what a request gets, greedy or drawn, is the same to the
bit, and nothing has to be accepted by chance.
"""

from collections.abc import Sequence

import numpy as np

from serving.bundle.manifest import Manifest
from serving.engine.batch import Batch
from serving.engine.config import EngineConfig
from serving.engine.graphs.graph import Graph
from serving.engine.rows import Follower
from serving.engine.scores import Scores
from serving.engine.speculation.costs import Costs
from serving.engine.speculation.drafts import Drafts
from serving.engine.speculation.verifier import Verifier
from serving.engine.states.store import StateStore

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
