"""Scores what follows each of several tokens of a row in one run, to the bit as steps would.

Keys and values of tokens that a row then does not take are of no consequence: they lie beyond its
length, where nothing reads, and its next tokens overwrite them.
"""

from collections.abc import Sequence

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import VERIFY, WANTS_LOGP, Manifest
from serving.engine.batch import Batch
from serving.engine.graphs.graph import Graph, Run
from serving.engine.scores import Scores, WholeVocabulary
from serving.engine.speculation.drafts import Draft
from serving.engine.states.kind import NEXT
from serving.engine.states.store import StateStore


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
