"""Multi-head attention with ONNX Runtime's GroupQueryAttention: ragged rows, no masks.

Each row attends over its own length only, whatever the buffers are padded to. Keys and values lie
in the engine's buffers; the step graph appends to them in place.
"""

import math
from dataclasses import dataclass

from export.graph.writer import GraphWriter, Value, element_type
from export.layers.heads import HeadLayout
from serving.bundle.manifest import LENGTH, SOURCE, StateKind, StateSpec

KeyValue = tuple[Value, Value]  # each [batch, kv_heads, length, head_dim]
LOWEST = -1e30  # score of positions beyond a row's end


@dataclass(frozen=True)
class Heads:
    """Sizes of one attention layer, and what the operator does beside: RoPE, given ``rotary`` (cos,
    sin), a sliding ``window`` of positions, each one's own included, and scores that become
    cap * tanh(score / cap).

    Dimensions are those of the graph, with heads padded; those that were trained are told as such.
    """

    num_heads: int
    num_kv_heads: int
    layout: HeadLayout
    dtype: str
    rotary: tuple[Value, Value] | None = None
    window: int | None = None
    cap: float | None = None

    @property
    def head_dim(self) -> int:
        return self.layout.padded_size

    @property
    def scale(self) -> float:
        """Of scores."""
        return 1 / math.sqrt(self.layout.size)

    @property
    def trained_query_dim(self) -> int:
        return self.num_heads * self.layout.size

    @property
    def trained_kv_dim(self) -> int:
        return self.num_kv_heads * self.layout.size

    @property
    def query_dim(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """How many heads share keys and values."""
        return self.num_heads // self.num_kv_heads

    @property
    def attributes(self) -> dict[str, float]:
        """Of the operator."""
        counts = {"num_heads": self.num_heads, "kv_num_heads": self.num_kv_heads}
        return {**counts, "scale": self.scale}

    def states(self, name: str, kind: StateKind, layer: int) -> list[StateSpec]:
        """States of the layer's keys and values: ``self_key.0``, ``self_value.0``."""
        axis = LENGTH if kind is StateKind.APPEND else SOURCE
        shape = (self.num_kv_heads, axis, self.head_dim)
        names = (f"{name}_{part}.{layer}" for part in ("key", "value"))
        return [StateSpec(each, kind, shape, self.dtype) for each in names]


def self_attention(
    graph: GraphWriter,
    qkv: Value,
    past: KeyValue,
    total_lengths: Value,
    capacity: int,
    heads: Heads,
    bias: Value | None = None,
) -> tuple[Value, Value, Value]:
    """qkv [batch, tokens, queries + keys + values] -> mixed values, next keys and values.

    Any number of rows with one token each, or one row with several tokens. The longest total
    length may be any bound on it; a constant needs no copy from the GPU. ``bias`` [batch, heads, 1,
    capacity], with one token each, is added to the scores.
    """
    in_operator = bias if heads.dtype == "float32" else None  # CUDA's operator takes none
    mixed, keys, values = graph.ms.GroupQueryAttention(
        qkv,
        None,
        None,
        *past,
        graph.op.Sub(total_lengths, graph.constant(1, "int32")),
        graph.constant([capacity], "int32"),
        *(heads.rotary or (None, None)),
        None,
        in_operator,
        **heads.attributes,
        do_rotary=int(heads.rotary is not None),
        local_window_size=heads.window or -1,
        softcap=heads.cap or 0.0,
        _outputs=3,
    )
    if bias is not in_operator:
        query = graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])[0]
        mixed = _masked_attention(graph, query, (keys, values), total_lengths, heads, bias)
    return mixed, keys, values


def cross_attention(
    graph: GraphWriter, query: Value, memory: KeyValue, source_lengths: Value, heads: Heads
) -> Value:
    """query [batch, 1, query_dim] attends to encoder keys and values.

    They are given as a past, with no new keys. ONNX Runtime takes one token per row here.
    """
    if heads.dtype != "float32":
        return _masked_attention(graph, query, memory, source_lengths, heads)
    return graph.ms.GroupQueryAttention(
        *_of_source(graph, query, memory, source_lengths, heads), **heads.attributes
    )


def int8_cross_attention(
    graph: GraphWriter, query: Value, memory: KeyValue, source_lengths: Value, heads: Heads
) -> list[Value]:
    """The same of int8 keys and values, whose levels count as they are.

    Returns what was found, and the memory, which the operator wants to give back: unchanged, and in
    place where that is bound to it.
    """
    one = graph.constant([1], "float32")
    quantised = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"}
    results = graph.ms.GroupQueryAttention(
        *_of_source(graph, query, memory, source_lengths, heads),
        *[None] * 5,
        one,
        one,
        **heads.attributes,
        **quantised,
        kv_cache_bit_width=8,
        _outputs=3,
    )
    return list(results)


def _of_source(
    graph: GraphWriter, query: Value, memory: KeyValue, source_lengths: Value, heads: Heads
) -> tuple[Value, ...]:
    """The operator's first inputs."""
    op = graph.op
    ends, axes = graph.ints(0, heads.kv_dim), graph.ints(1, 2)
    nothing = op.Slice(query, graph.ints(0, 0), ends, axes)  # [batch, 0, kv_dim]
    last_positions = op.Sub(source_lengths, graph.constant(1, "int32"))
    span = op.Cast(op.Shape(memory[0], start=2, end=3), to=6)
    return query, nothing, nothing, *memory, last_positions, span


def attention_scores(graph: GraphWriter, query: Value, keys: Value, heads: Heads) -> Value:
    """What a query [batch, 1, query_dim] and keys [batch, kv_heads, source, head_dim] score: f32
    [batch, heads, source], before the softmax.

    Summed position by position, as a matrix product's order may depend on how many there are.
    """
    op = graph.op
    queries = split_heads(graph, query, heads)
    if heads.dtype != "float32":
        queries, keys = op.Cast(queries, to=1), op.Cast(keys, to=1)
    queries = op.Mul(queries, graph.constant(heads.scale, "float32"))
    if heads.group == 1:
        return op.ReduceSum(op.Mul(queries, keys), graph.ints(-1), keepdims=0)
    grouped = graph.ints(0, heads.num_kv_heads, heads.group, 1, heads.head_dim)
    products = op.Mul(op.Reshape(queries, grouped), op.Unsqueeze(keys, graph.ints(2)))
    scores = op.ReduceSum(products, graph.ints(-1), keepdims=0)
    return op.Reshape(scores, graph.ints(0, heads.num_heads, -1))


def ragged_softmax(graph: GraphWriter, scores: Value, within: Value) -> Value:
    """Softmax over the last axis of f32 ``scores``, where ``within``; exactly 0 elsewhere.

    It must not depend on how far the rows are padded: CumSum adds one position after the other.
    """
    op, last = graph.op, graph.ints(-1)
    scores = op.Where(within, scores, graph.constant(LOWEST, "float32"))
    above = op.Exp(op.Sub(scores, op.ReduceMax(scores, last, keepdims=1)))
    likelihood = op.Where(within, above, graph.constant(0, "float32"))
    running = op.CumSum(likelihood, graph.constant(-1, "int64"))
    return op.Div(likelihood, op.ReduceMax(running, last, keepdims=1))


def encoder_attention(
    graph: GraphWriter, qkv: Value, lengths: Value, heads: Heads, bias: Value | None = None
) -> Value:
    """Every position attends to all real positions of its row, with a ``bias`` [1, heads, source,
    source] of the scores if any.
    """
    op = graph.op
    if heads.dtype != "float32":
        query, *key_value = graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
        key, value = (split_heads(graph, each, heads) for each in key_value)
        return _masked_attention(graph, query, (key, value), lengths, heads, bias)
    total = op.Cast(op.Shape(qkv, start=1, end=2), to=6)
    last_positions = op.Sub(lengths, graph.constant(1, "int32"))
    optional = (None, None, None, bias)
    return graph.ms.GroupQueryAttention(
        qkv, None, None, None, None, last_positions, total, *optional, **heads.attributes, causal=0
    )


def split_heads(graph: GraphWriter, x: Value, heads: Heads) -> Value:
    """[batch, length, heads * head_dim] -> [batch, heads, length, head_dim]."""
    split = graph.op.Reshape(x, graph.ints(0, 0, -1, heads.head_dim))
    return graph.op.Transpose(split, perm=[0, 2, 1, 3])


def is_real(graph: GraphWriter, like: Value, lengths: Value) -> Value:
    """Whether positions of ``like`` [batch, length] lie within their rows: [batch, length] bool.

    Positions are counted by a running sum: a Range would be made on the CPU, which a CUDA session
    refuses.
    """
    return graph.op.LessOrEqual(count(graph, like), graph.op.Unsqueeze(lengths, graph.ints(1)))


def count(graph: GraphWriter, like: Value) -> Value:
    """1, 2, 3, ... along the rows of ``like`` [batch, length]: int32."""
    ones = graph.op.Cast(graph.op.Equal(like, like), to=6)
    return graph.op.CumSum(ones, graph.constant(1, "int64"))


def places(graph: GraphWriter, like: Value) -> Value:
    """0, 1, 2, ... along the rows of ``like`` [batch, length]: int32."""
    return graph.op.Sub(count(graph, like), graph.constant(1, "int32"))


def _masked_attention(
    graph: GraphWriter,
    query: Value,
    key_value: KeyValue,
    lengths: Value,
    heads: Heads,
    bias: Value | None = None,
) -> Value:
    """Plain attention in standard operators, for CUDA: there GroupQueryAttention writes present
    keys and values even where nobody wants them. Softmax is taken in fp32.
    """
    op = graph.op
    keys, values = (_repeat(graph, each, heads) for each in key_value)
    scale = graph.constant(heads.scale, heads.dtype)
    queries = split_heads(graph, op.Mul(query, scale), heads)
    scores = op.Cast(op.MatMul(queries, op.Transpose(keys, perm=[0, 1, 3, 2])), to=1)
    if bias is not None:
        scores = op.Add(scores, op.Cast(bias, to=1))
    any_head = op.ReduceMax(scores, graph.ints(1, 2), keepdims=0)  # [batch, source], for its shape
    mask = op.Unsqueeze(is_real(graph, any_head, lengths), graph.ints(1, 2))
    scores = op.Where(mask, scores, graph.constant(LOWEST, "float32"))
    mixed = op.MatMul(op.Cast(op.Softmax(scores, axis=-1), to=element_type(heads.dtype)), values)
    return op.Reshape(op.Transpose(mixed, perm=[0, 2, 1, 3]), graph.ints(0, 0, heads.query_dim))


def _repeat(graph: GraphWriter, x: Value, heads: Heads) -> Value:
    """Give every head its keys or values: [batch, kv_heads, ...] -> [batch, heads, ...]."""
    if heads.group == 1:
        return x
    return graph.op.Gather(
        x, graph.ints(*(h // heads.group for h in range(heads.num_heads))), axis=1
    )
