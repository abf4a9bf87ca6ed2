"""Computes what tokens look at, beside the operator that mixes values and gives no weights.

ONNX Runtime's GroupQueryAttention can put its weights out, but computes in another way then, whose
bits are others, and leaves some unset. So they are computed a second time, in standard operators,
and nothing of the model's own results depends on them.
"""

from dataclasses import dataclass

from export.graph.value import Value
from export.graph.writer import GraphWriter
from export.layers.attention import Heads, split_heads
from export.layers.ragged import is_real, places, softmax_within
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


def encoder_weights(qkv: Value, lengths: Value, heads: Heads, bias: Value | None) -> Value:
    """Return how much each position looks at all real ones of its row: f32 [batch, heads, source,
    source]; see `export.layers.attention.encoder_attention`.
    """
    query, key, _ = qkv.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
    scores = _scores(split_heads(query, heads), split_heads(key, heads), heads)
    if bias is not None:
        scores = scores + bias.cast("float32")
    return softmax_within(scores, is_real(_any_query(scores), lengths).unsqueeze(1, 2))


@dataclass(frozen=True)
class ReadTarget:
    """Says of one decoder layer what its tokens read; see `export.layers.attention.self_attention`.

    past_lengths: int32 [batch]. attended: int64 [1], of how many first positions is told.
    """

    past_lengths: Value
    attended: Value
    heads: Heads
    bias: Value | None = None

    def none(self, qkv: Value) -> Value:
        """Tell of no positions: f32 [batch, heads, tokens, 0]."""
        graph = qkv.graph
        lengths = qkv.length(0), graph.ints(self.heads.num_heads), qkv.length(1), graph.ints(0)
        nothing: Value = graph.op.ConstantOfShape(graph.op.Concat(*lengths, axis=0))
        return nothing

    def weights(self, qkv: Value, keys: Value) -> Value:
        """Return how much tokens, qkv [batch, tokens, all], look at positions so far, their own
        included, of which keys [batch, kv_heads, capacity, head_dim] are kept: f32 [batch, heads,
        tokens, attended].
        """
        heads = self.heads
        query = qkv.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])[0]
        own = places(query.max(-1, keepdims=False)) + self.past_lengths.unsqueeze(1)
        queries = _rotated(split_heads(query, heads), own, heads)
        scores = _scores(queries, keys[:, :, : self.attended], heads)
        if heads.cap is not None:
            scores = (scores / heads.cap).tanh() * heads.cap
        if self.bias is not None:
            scores = scores + self.bias[:, :, :, : self.attended].cast("float32")
        return softmax_within(scores, self._within(scores, own))

    def _within(self, scores: Value, own: Value) -> Value:
        """Return which positions each token may look at: [batch, 1, tokens, attended]."""
        others = places(_any_query(scores)).unsqueeze(1)
        own = own.unsqueeze(2)
        within = others <= own
        if self.heads.window is not None:
            within = within & (others > own - self.heads.window)
        return within.unsqueeze(1)


def _scores(queries: Value, keys: Value, heads: Heads) -> Value:
    """Score keys [batch, kv_heads, positions, head_dim] by queries [batch, heads, tokens,
    head_dim]: f32 [batch, heads, tokens, positions].
    """
    queries = queries.cast("float32") * heads.scale
    if heads.group > 1:
        queries = queries.reshape(0, heads.num_kv_heads, -1, heads.head_dim)
    scores = queries @ keys.cast("float32").transpose(0, 1, 3, 2)
    return scores.reshape(0, heads.num_heads, -1, 0) if heads.group > 1 else scores


def _rotated(queries: Value, positions: Value, heads: Heads) -> Value:
    """Rotate queries [batch, heads, tokens, head_dim] as the operator does, by their positions
    int32 [batch, tokens]; padding may go beyond the last.
    """
    if heads.rotary is None:
        return queries
    graph = queries.graph
    shape = heads.rotary[0].bare.shape
    assert shape is not None, "a table has a shape"
    length, pairs = shape.numpy()
    clipped = positions.minimum(length - 1)
    cos, sin = (graph.op.Gather(table, clipped).unsqueeze(1) for table in heads.rotary)
    others = heads.head_dim - 2 * pairs
    first, second, *rest = graph.split(queries, [pairs, pairs, *([others] if others else ())])
    turned = first * cos - second * sin, second * cos + first * sin
    return graph.op.Concat(*turned, *rest, axis=-1)


def _any_query(scores: Value) -> Value:
    """Take of scores [batch, heads, tokens, positions] a row for its shape: [batch, positions]."""
    return scores.max(1, 2, keepdims=False)


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
