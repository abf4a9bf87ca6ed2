"""Runs the encode graph over padded sources, into the state store's scratch memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.arrays import Array
from serving.bundle.manifest import ATTENTION_OUTPUTS, AttentionKind, Manifest
from serving.engine.graphs.graph import Graph, Graphs, Run
from serving.engine.states.store import StateStore, max_span


class Encoder:
    """Binds the encode graph once per shape; the one that also gives attention whenever it runs."""

    def __init__(self, manifest: Manifest, graphs: Graphs, states: StateStore) -> None:
        assert graphs.encode is not None
        self._graph, self._states = graphs.encode, states
        self._load = graphs.encode_attention
        told = manifest.told_attention.get(AttentionKind.ENCODER)
        self._num_maps = told.num_maps if told else 0
        self._pad = manifest.tokens.pad
        self._longest = max_span(manifest)
        self._bound: dict[tuple[int, int], EncodeBinding] = {}

    def run(self, sources: Sequence[tuple[int, ...]], span: int) -> None:
        key = (len(sources), span)
        if key not in self._bound:
            self._bound[key] = self._bind(self._graph, *key, {})
        bound = self._bound[key]
        bound.fill(sources, self._pad)
        bound.run()

    def run_telling(self, source: tuple[int, ...], span: int) -> Array:
        """Run one source; return what its tokens look at, f32 [heads, span, span]."""
        told = np.zeros((1, self._num_maps, span, span), np.float32)
        name = ATTENTION_OUTPUTS[AttentionKind.ENCODER][1]
        bound = self._bind(self._telling, 1, span, {name: told})
        bound.fill([source], self._pad)
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
        run = graph.bind(inputs, self._states.scratch(num_rows, span) | outputs)
        return EncodeBinding(ids, lengths, run)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    run: Run

    def fill(self, sources: Sequence[tuple[int, ...]], pad: int) -> None:
        self.ids[...] = pad
        for row, source in enumerate(sources):
            self.ids[row, : len(source)] = source
            self.lengths[row] = len(source)
