"""Tells what tokens look at: weights of attention layers, put out beside what a graph computes.

Only graphs made for it tell; in all else they are the graphs that they are made after, node by
node, so that whoever wants to see changes nothing of what is seen.
"""

from export.graph.value import Value
from export.graph.writer import GraphWriter
from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    ENCODE_ATTENTION,
    SOURCE,
    STEP_ATTENTION,
    AttentionKind,
    AttentionShape,
    Shape,
)


class Telling:
    """Collects weights of one graph, layer by layer; `shapes` says what has been put out.

    num_tokens: of each row that the graph reads at once, or the name of that axis. num_hops: of an
    embedding that is made of such.
    """

    def __init__(self, graph: GraphWriter, num_tokens: int | str = 1, num_hops: int = 0) -> None:
        self._graph = graph
        self._axes: dict[AttentionKind, Shape] = {
            AttentionKind.CROSS: (SOURCE,),
            AttentionKind.ENCODER: (SOURCE, SOURCE),
            AttentionKind.DECODER: (num_tokens, ATTENDED),
            AttentionKind.HOPS: (num_hops, SOURCE),
        }
        self._layers: dict[AttentionKind, list[Value]] = {}
        self.shapes: dict[str, AttentionShape] = {}

    @property
    def is_on(self) -> bool:
        return self._graph.name in (STEP_ATTENTION, ENCODE_ATTENTION)

    def attended(self) -> Value:
        """Ask, once, of how many target positions attention is told: int64 [1]."""
        return self._graph.input(ATTENDED, "int64", (1,), per_row=False)

    def add(self, kind: AttentionKind, weights: Value) -> None:
        """Take in one layer's weights f32 [batch, heads, tokens, positions]."""
        self._layers.setdefault(kind, []).append(weights)

    def finish(self, kind: AttentionKind, num_heads: int) -> None:
        """Put out what has been taken in of a kind, if anything."""
        layers = self._layers.get(kind, [])
        if not layers:
            return
        joined = self._graph.op.Concat(*layers, axis=1) if len(layers) > 1 else layers[0]
        self.put(kind, joined, AttentionShape(len(layers), num_heads))

    def put(self, kind: AttentionKind, weights: Value, shape: AttentionShape) -> None:
        """Put out weights f32 [batch, layers * heads, ...]."""
        axes = (shape.num_maps, *self._axes[kind])
        self._graph.output(ATTENTION_OUTPUTS[kind][1], weights, "float32", axes)
        self.shapes[kind] = shape
