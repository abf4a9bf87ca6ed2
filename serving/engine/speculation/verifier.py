"""Scores what follows each of several tokens of a row in one run, to the bit as steps would.

Keys and values of tokens that a row then does not take are of no consequence: they lie beyond its
length, where nothing reads, and its next tokens overwrite them.
"""

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import VERIFY, WANTS_LOGP, Manifest
from serving.engine.batch import Batch
from serving.engine.graphs.graph import Graph, Run
from serving.engine.rows import Follower
from serving.engine.scores import Scores, WholeVocabulary
from serving.engine.states.kind import NEXT
from serving.engine.states.store import StateStore


class Verifier(Follower):
    """Follows the rows of the last run.

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
        self._rows = np.arange(batch.slots)  # of each row now, what it was in the run
        self._bound: dict[tuple[int, bool], Run] = {}

    def move(self, source: int, target: int) -> None:
        self._rows[target] = self._rows[source]

    def launch(self, drafts: Array, wants_logp: bool) -> None:
        """Run the first rows. drafts: i64 [rows, num_tokens - 1], negative where there are none."""
        num_rows = len(drafts)
        self._ids[:num_rows, :1] = self._batch.ids[:num_rows]
        self._ids[:num_rows, 1:] = np.maximum(drafts, 0)
        self._rows[:num_rows] = np.arange(num_rows)
        key = num_rows, wants_logp
        if key not in self._bound:
            self._bound[key] = self._graph.bind(*self._arrays(*key))
        self._bound[key]()
        self._batch.num_ahead += self.num_tokens

    def scores(self, turn: int) -> Scores:
        """Return what was said of the rows that there are now, after so many tokens of drafts."""
        num_rows, count = self._batch.num_rows, self.num_tokens
        rows = self._rows[:num_rows]
        if (rows == np.arange(num_rows)).all():
            return self._scoring.scores(slice(turn, num_rows * count, count))
        return self._scoring.scores(rows * count + turn)

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
