"""Attention weights as outputs of a graph, beside what it computes.

Only the graphs `encode_attention` and `step_attention` put them out. In all else these are the same
graphs, node by node, so that asking for attention changes no result.

ONNX Runtime's GroupQueryAttention can put its weights out, but then it computes in another way,
with other bits, and leaves some unset. So weights are computed a second time, in standard
operators.
"""

from dataclasses import dataclass

from export.graph.value import Value
from export.graph.writer import GraphWriter
from export.layers.attention import Heads, split_heads
from export.layers.ragged import is_real, positions_from_zero, softmax_within
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

ONE_HEAD = AttentionShape(1, 1)


def encoder_attention_weights(
    qkv: Value, lengths: Value, heads: Heads, bias: Value | None
) -> Value:
    """Return the weights of each position over the real positions of its row: f32 [batch, heads,
    source, source]; see `export.layers.attention.encoder_attention`.
    """
    query, key, _ = qkv.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
    scores = _scores(split_heads(query, heads), split_heads(key, heads), heads)
    if bias is not None:
        scores = scores + bias.cast("float32")
    return softmax_within(scores, is_real(_any_query(scores), lengths).unsqueeze(1, 2))


@dataclass(frozen=True)
class DecoderAttentionWeights:
    """The weights of a decoder layer over the target; see `export.layers.attention.self_attention`.

    past_lengths: int32 [batch]. attended: int64 [1], the number of first positions that are put
    out.
    """

    past_lengths: Value
    attended: Value
    heads: Heads
    bias: Value | None = None

    def none(self, qkv: Value) -> Value:
        """Return weights of no positions: f32 [batch, heads, tokens, 0]."""
        graph = qkv.graph
        lengths = qkv.length(0), graph.ints(self.heads.num_heads), qkv.length(1), graph.ints(0)
        nothing: Value = graph.op.ConstantOfShape(graph.op.Concat(*lengths, axis=0))
        return nothing

    def weights(self, qkv: Value, keys: Value) -> Value:
        """Return weights f32 [batch, heads, tokens, attended] of tokens, qkv [batch, tokens, all],
        over positions so far, their own included. keys: [batch, kv_heads, capacity, head_dim].
        """
        heads = self.heads
        query = qkv.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])[0]
        own = positions_from_zero(query.max(-1, keepdims=False)) + self.past_lengths.unsqueeze(1)
        queries = _rotated(split_heads(query, heads), own, heads)
        scores = _scores(queries, keys[:, :, : self.attended], heads)
        if heads.cap is not None:
            scores = (scores / heads.cap).tanh() * heads.cap
        if self.bias is not None:
            scores = scores + self.bias[:, :, :, : self.attended].cast("float32")
        return softmax_within(scores, self._within(scores, own))

    def _within(self, scores: Value, own: Value) -> Value:
        """Return which positions each token may attend to: [batch, 1, tokens, attended]."""
        others = positions_from_zero(_any_query(scores)).unsqueeze(1)
        own = own.unsqueeze(2)
        within = others <= own
        if self.heads.window is not None:
            within = within & (others > own - self.heads.window)
        return within.unsqueeze(1)


def _scores(queries: Value, keys: Value, heads: Heads) -> Value:
    """Return scores f32 [batch, heads, tokens, positions] of queries [batch, heads, tokens,
    head_dim] and keys [batch, kv_heads, positions, head_dim].
    """
    queries = queries.cast("float32") * heads.scale
    if heads.group > 1:
        queries = queries.reshape(0, heads.num_kv_heads, -1, heads.head_dim)
    scores = queries @ keys.cast("float32").transpose(0, 1, 3, 2)
    return scores.reshape(0, heads.num_heads, -1, 0) if heads.group > 1 else scores


def _rotated(queries: Value, positions: Value, heads: Heads) -> Value:
    """Rotate queries [batch, heads, tokens, head_dim] as the operator does, by positions int32
    [batch, tokens]. Positions of padding may be beyond the last.
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
    """Return one row of scores [batch, heads, tokens, positions], for its shape: [batch,
    positions].
    """
    return scores.max(1, 2, keepdims=False)


class AttentionOutputs:
    """Collects attention weights of one graph, layer by layer. `shapes` lists the outputs.

    num_tokens: tokens of each row that the graph reads at once, or the name of that axis.
    num_hops: of an embedding that is made of hops.
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

    def num_attended(self) -> Value:
        """Declare the input of how many target positions are put out: int64 [1]. Call it once."""
        return self._graph.input(ATTENDED, "int64", (1,), per_row=False)

    def add(self, kind: AttentionKind, weights: Value) -> None:
        """Add one layer's weights f32 [batch, heads, tokens, positions]."""
        self._layers.setdefault(kind, []).append(weights)

    def finish(self, kind: AttentionKind, num_heads: int) -> None:
        """Put out the added weights of a kind, if there are any."""
        layers = self._layers.get(kind, [])
        if not layers:
            return
        joined = self._graph.op.Concat(*layers, axis=1) if len(layers) > 1 else layers[0]
        self.put(kind, joined, AttentionShape(len(layers), num_heads))

    def put(self, kind: AttentionKind, weights: Value, shape: AttentionShape = ONE_HEAD) -> None:
        """Put out weights f32 [batch, layers * heads, ...]."""
        axes = (shape.num_maps, *self._axes[kind])
        self._graph.output(ATTENTION_OUTPUTS[kind][1], weights, "float32", axes)
        self.shapes[kind] = shape
