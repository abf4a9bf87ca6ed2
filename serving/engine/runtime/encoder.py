"""Encode texts, pictures or sound: the encode graph, bound once for each shape."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from serving.bundle.manifest import (
    SOURCE,
    SOURCE_TYPES,
    AttentionKind,
    Manifest,
    TensorSpec,
)
from serving.engine.arrays import Array
from serving.engine.runtime.graph import Graph, Graphs, Run
from serving.engine.states.store import max_source_tokens, max_span
from serving.requests.request import Media, Source

OutputArrays = Callable[[int, int], dict[str, Array]]  # (number of rows, span)


class Encoder:
    """Binds the encode graph once per shape; the graph with attention is bound for each run.

    outputs: returns the graph's output arrays for a number of rows and a span, by name.
    """

    def __init__(self, manifest: Manifest, graphs: Graphs, outputs: OutputArrays) -> None:
        assert graphs.encode is not None
        self._graph, self._outputs = graphs.encode, outputs
        self._load_attention_graph = graphs.encode_attention
        self._attention_output = _find_attention_output(manifest)
        inputs = manifest.graphs["encode"].inputs
        self._has_types = any(tensor.name == SOURCE_TYPES for tensor in inputs)
        self._pad, self._media_input = manifest.tokens.pad, manifest.media_input
        self._longest = max_source_tokens(manifest) if self._media_input else max_span(manifest)
        self._bound: dict[tuple[int, int], EncodeBinding | MediaBinding] = {}

    def run(
        self,
        sources: Sequence[Source],
        span: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        """Encode sources, padded to `span`. pair_starts: positions of the second text of
        each pair.
        """
        key = (len(sources), span)
        binding = self._bound.get(key)
        if binding is None:
            binding = self._bound[key] = self._bind(self._graph, *key, {})
        binding.fill(sources, self._pad, pair_starts)
        binding.run()

    def run_with_attention(self, source: Source, span: int, pair_start: int | None = None) -> Array:
        """Encode one source; return its attention weights, f32 [heads, span, span], or those of its
        hops, f32 [1, hops, span].
        """
        output = self._attention_output
        assert output is not None
        shape = (span if axis == SOURCE else int(axis) for axis in output.shape[1:])
        weights = np.zeros((1, *shape), np.float32)
        binding = self._bind(self._attention_graph, 1, span, {output.name: weights})
        binding.fill([source], self._pad, [pair_start])
        binding.run()
        attention: Array = weights[0]
        return attention

    @cached_property
    def _attention_graph(self) -> Graph:
        assert self._load_attention_graph is not None
        return self._load_attention_graph()

    def warm_up(self) -> None:
        """Encode a source of maximum length, which needs most memory."""
        if self._media_input is None:
            self.run([(self._pad,)], self._longest)
        else:
            self._bind(self._graph, 1, self._longest, {}).run()

    def _bind(
        self, graph: Graph, num_rows: int, span: int, outputs: dict[str, Array]
    ) -> "EncodeBinding | MediaBinding":
        outputs = self._outputs(num_rows, span) | outputs
        if self._media_input is not None:
            return MediaBinding(graph, num_rows, span, self._media_input, outputs)
        ids = np.zeros((num_rows, span), np.int64)
        lengths = np.zeros(num_rows, np.int32)
        inputs: dict[str, Array] = {"source_ids": ids, "source_lengths": lengths}
        types = np.zeros((num_rows, span), np.int64) if self._has_types else None
        if types is not None:
            inputs[SOURCE_TYPES] = types
        run = graph.bind(inputs, outputs)
        return EncodeBinding(ids, lengths, types, run)


def _find_attention_output(manifest: Manifest) -> TensorSpec | None:
    """Return the output with the attention of source tokens, or of hops."""
    outputs = map(manifest.attention_output, (AttentionKind.ENCODER, AttentionKind.HOPS))
    return next((spec for spec in outputs if spec is not None), None)


@dataclass(frozen=True)
class EncodeBinding:
    ids: Array
    lengths: Array
    types: Array | None
    run: Run

    def fill(
        self,
        sources: Sequence[Source],
        pad: int,
        pair_starts: Sequence[int | None] | None = None,
    ) -> None:
        self.ids[...] = pad
        for row, source in enumerate(sources):
            assert not isinstance(source, Media)
            self.ids[row, : len(source)] = source
            self.lengths[row] = len(source)
        if self.types is None:
            return
        self.types[...] = 0
        for row, start in enumerate(pair_starts or ()):
            if start is not None:
                self.types[row, start : len(sources[row])] = 1


class MediaBinding:
    """The encode graph bound to the pixels or the features of some sources, all of one length."""

    def __init__(
        self, graph: Graph, num_rows: int, length: int, spec: TensorSpec, outputs: dict[str, Array]
    ) -> None:
        shape = [int(size) for size in spec.shape[1:]]
        self._values = np.zeros((num_rows, *shape), spec.dtype)
        lengths = np.full(num_rows, length, np.int32)
        self.run = graph.bind({spec.name: self._values, "source_lengths": lengths}, outputs)

    def fill(self, sources: Sequence[Source], *_: object) -> None:
        for values, source in zip(self._values, sources, strict=True):
            assert isinstance(source, Media)
            values[...] = np.frombuffer(source.content, values.dtype).reshape(values.shape)
