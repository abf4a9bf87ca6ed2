"""Runs the encode graph over padded sources, into the state store's scratch memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import Manifest
from serving.engine.graphs.graph import Graph, Run
from serving.engine.states.store import StateStore, max_span


class Encoder:
    """Binds the encode graph once per shape."""

    def __init__(self, manifest: Manifest, graph: Graph, states: StateStore) -> None:
        self._graph, self._states = graph, states
        self._pad = manifest.tokens.pad
        self._longest = max_span(manifest)
        self._bound: dict[tuple[int, int], EncodeBinding] = {}

    def run(self, sources: Sequence[tuple[int, ...]], span: int) -> None:
        key = (len(sources), span)
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        bound = self._bound[key]
        bound.ids[...] = self._pad
        for row, source in enumerate(sources):
            bound.ids[row, : len(source)] = source
            bound.lengths[row] = len(source)
        bound.run()

    def warm_up(self) -> None:
        """Encode as long a source as there may be: what costs most memory."""
        self.run([(self._pad,)], self._longest)

    def _bind(self, num_rows: int, span: int) -> "EncodeBinding":
        ids = np.zeros((num_rows, span), np.int64)
        lengths = np.zeros(num_rows, np.int32)
        inputs: dict[str, Array] = {"source_ids": ids, "source_lengths": lengths}
        run = self._graph.bind(inputs, self._states.scratch(num_rows, span))
        return EncodeBinding(ids, lengths, run)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    run: Run
