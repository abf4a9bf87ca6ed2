"""Runs the encode graph over padded sources, into memory that the next run overwrites."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import SOURCE_TYPES, Manifest
from serving.engine.graphs.graph import Graph, Run
from serving.engine.states.store import max_span

Scratch = Callable[[int, int], dict[str, Array]]


class Encoder:
    """Binds the encode graph once per shape.

    scratch: returns where so many rows of such a span are written, by the names of outputs.
    """

    def __init__(self, manifest: Manifest, graph: Graph, scratch: Scratch) -> None:
        self._graph, self._scratch = graph, scratch
        inputs = manifest.graphs["encode"].inputs
        self._has_types = any(tensor.name == SOURCE_TYPES for tensor in inputs)
        self._pad = manifest.tokens.pad
        self._longest = max_span(manifest)
        self._bound: dict[tuple[int, int], EncodeBinding] = {}

    def run(
        self,
        sources: Sequence[tuple[int, ...]],
        span: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        """Encode sources, padded to `span`. pair_starts: where the second text of each begins."""
        key = (len(sources), span)
        if key not in self._bound:
            self._bound[key] = self._bind(*key)
        bound = self._bound[key]
        bound.ids[...] = self._pad
        for row, source in enumerate(sources):
            bound.ids[row, : len(source)] = source
            bound.lengths[row] = len(source)
        if bound.types is not None:
            bound.types[...] = 0
            for row, start in enumerate(pair_starts or ()):
                if start is not None:
                    bound.types[row, start : len(sources[row])] = 1
        bound.run()

    def warm_up(self) -> None:
        """Encode as long a source as there may be: what costs most memory."""
        self.run([(self._pad,)], self._longest)

    def _bind(self, num_rows: int, span: int) -> "EncodeBinding":
        ids = np.zeros((num_rows, span), np.int64)
        lengths = np.zeros(num_rows, np.int32)
        inputs: dict[str, Array] = {"source_ids": ids, "source_lengths": lengths}
        types = np.zeros((num_rows, span), np.int64) if self._has_types else None
        if types is not None:
            inputs[SOURCE_TYPES] = types
        run = self._graph.bind(inputs, self._scratch(num_rows, span))
        return EncodeBinding(ids, lengths, types, run)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    types: Array | None
    run: Run
