"""Runs the encode graph over padded sources, into memory that the next run overwrites."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import (
    SOURCE,
    SOURCE_TYPES,
    AttentionKind,
    Manifest,
    TensorSpec,
)
from serving.engine.graphs.graph import Graph, Graphs, Run
from serving.engine.states.store import max_span

Scratch = Callable[[int, int], dict[str, Array]]


class Encoder:
    """Binds the encode graph once per shape; the one that also gives attention whenever it runs.

    scratch: returns where so many rows of such a span are written, by the names of outputs.
    """

    def __init__(self, manifest: Manifest, graphs: Graphs, scratch: Scratch) -> None:
        assert graphs.encode is not None
        self._graph, self._scratch = graphs.encode, scratch
        self._load = graphs.encode_attention
        self._told = _told_of_source(manifest)
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
            self._bound[key] = self._bind(self._graph, *key, {})
        bound = self._bound[key]
        bound.fill(sources, self._pad, pair_starts)
        bound.run()

    def run_telling(
        self, source: tuple[int, ...], span: int, pair_start: int | None = None
    ) -> Array:
        """Run one source; return what its tokens look at, f32 [heads, span, span], or its hops,
        f32 [1, hops, span].
        """
        assert self._told is not None
        shape = (span if axis == SOURCE else int(axis) for axis in self._told.shape[1:])
        told = np.zeros((1, *shape), np.float32)
        bound = self._bind(self._telling, 1, span, {self._told.name: told})
        bound.fill([source], self._pad, [pair_start])
        bound.run()
        attention: Array = told[0]
        return attention

    @cached_property
    def _telling(self) -> Graph:
        assert self._load is not None
        return self._load()

    def warm_up(self) -> None:
        """Encode as long a source as there may be: what costs most memory."""
        self.run([(self._pad,)], self._longest)

    def _bind(
        self, graph: Graph, num_rows: int, span: int, outputs: dict[str, Array]
    ) -> "EncodeBinding":
        ids = np.zeros((num_rows, span), np.int64)
        lengths = np.zeros(num_rows, np.int32)
        inputs: dict[str, Array] = {"source_ids": ids, "source_lengths": lengths}
        types = np.zeros((num_rows, span), np.int64) if self._has_types else None
        if types is not None:
            inputs[SOURCE_TYPES] = types
        run = graph.bind(inputs, self._scratch(num_rows, span) | outputs)
        return EncodeBinding(ids, lengths, types, run)


def _told_of_source(manifest: Manifest) -> TensorSpec | None:
    """Find the one output that tells what a source's tokens, or its hops, look at."""
    found = map(manifest.attention_output, (AttentionKind.ENCODER, AttentionKind.HOPS))
    return next((spec for spec in found if spec is not None), None)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    types: Array | None
    run: Run

    def fill(
        self,
        sources: Sequence[tuple[int, ...]],
        pad: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        self.ids[...] = pad
        for row, source in enumerate(sources):
            self.ids[row, : len(source)] = source
            self.lengths[row] = len(source)
        if self.types is None:
            return
        self.types[...] = 0
        for row, start in enumerate(pair_starts or ()):
            if start is not None:
                self.types[row, start : len(sources[row])] = 1
