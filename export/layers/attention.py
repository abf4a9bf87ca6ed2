"""Multi-head attention by ONNX Runtime's GroupQueryAttention, without masks.

Each row attends over its own length only, whatever the buffers are padded to. Keys and values lie
in the engine's buffers; the step graph appends to them in place.
"""

import math
from dataclasses import dataclass
from typing import Any

from export.graph.functions import (
    CROSS_ATTENTION,
    ENCODER_ATTENTION,
    FP16_SELF_ATTENTION,
    INT8_CROSS_ATTENTION,
    SELF_ATTENTION,
    attention_to_states,
    parse_function,
    quantize_memory,
    weights_of_source,
)
from export.graph.model import Target
from export.graph.writer import Value
from export.layers.basic import ALIGNED, HeadLayout, Layers
from models.errors import InputError
from serving.bundle.manifest import LENGTH, SOURCE, StateKind, StateSpec

LOWEST = -1e30  # score of positions beyond a row's end


def positions_from_one(like: Value) -> Value:
    """Return 1, 2, 3, ... along the rows of ``like`` [batch, length]: int32.

    This is a running sum, as a Range would be made on the CPU, which a CUDA session refuses.
    """
    op, graph = like.graph.op, like.graph
    ones = op.Equal(like, like).cast("int32")
    return op.CumSum(ones, graph.constant(1, "int64"))


def positions_from_zero(like: Value) -> Value:
    """Return 0, 1, 2, ... along the rows of ``like`` [batch, length]: int32."""
    return positions_from_one(like) - 1


def padded_by(x: Value, more: Value) -> Value:
    """Return x [batch, length] with ``more`` [1] int64 zeros after each row."""
    graph = x.graph
    pads = graph.op.Concat(graph.ints(0, 0, 0), more, axis=0)
    return graph.op.Pad(x, pads, graph.constant(0, x.dtype))


def is_real(like: Value, lengths: Value) -> Value:
    """Return which positions of ``like`` [batch, length] lie within their rows: [batch, length]."""
    return positions_from_one(like) <= lengths.unsqueeze(1)


def ragged_softmax(scores: Value, lengths: Value) -> Value:
    """Return the softmax of f32 scores [batch, length] over each row's own length; 0 beyond."""
    return softmax_within(scores, is_real(scores, lengths))


def one_hot_of_largest(weights: Value) -> Value:
    """Return 1 at the largest of f32 weights [batch, length] and 0 elsewhere; of equals the
    first.
    """
    best = weights.graph.op.ArgMax(weights, axis=1, keepdims=1)
    return weights.graph.op.Equal(positions_from_zero(weights), best.cast("int32")).cast("float32")


def softmax_within(scores: Value, within: Value, sinks: Value | None = None) -> Value:
    """Return the softmax over the last axis of f32 ``scores``, where ``within``; exactly 0
    elsewhere. sinks: [..., 1], further scores, whose shares are left out.

    It must not depend on how far the rows are padded: CumSum adds one position after the other.
    """
    graph = scores.graph
    scores = scores.where(within, LOWEST)
    greatest = scores.max(-1, keepdims=True)
    if sinks is not None:
        greatest = graph.op.Max(greatest, sinks)
    likelihood = (scores - greatest).exp().where(within, 0)
    running = graph.op.CumSum(likelihood, graph.constant(-1, "int64"))
    total = running.max(-1, keepdims=True)
    return likelihood / (total if sinks is None else total + (sinks - greatest).exp())


def additive_scores(layers: Layers, query: Value, keys: Value, name: str, dim: int) -> Value:
    """Return v . tanh(query [batch, dim] + keys [batch, length, dim]): f32 [batch, length]."""
    weight = score_vector(layers, name, dim)
    return layers.dot((query.unsqueeze(1) + keys).tanh(), weight, dim)


def attend_to_states(
    layers: Layers,
    query: Value,
    keys: Value,
    values: Value,
    lengths: Value,
    dim: int,
    score: str | None = None,
    scale: float = 1.0,
) -> tuple[Value, Value]:
    """Attend from query [batch, dim] to the states of a recurrent encoder: keys [batch, source,
    dim], values [batch, source, value_dim]. Return the weights f32 [batch, source] and the context
    [batch, value_dim].

    score: the name of the weights v of additive scores, v . tanh(query + key); None: the scores are
        scale * query . key.
    """
    if layers.dtype == "float32":
        vectors = [] if score is None else [score_vector(layers, score, dim)]
        text = attention_to_states(dim, -dim % ALIGNED, score is not None)
        inputs = query, keys, values, lengths, *vectors
        types = ("float32", "float32")
        weights, context = layers.graph.call(
            parse_function(text), *inputs, types=types, scale=scale
        )
        return weights, context
    if score is not None:
        scores = additive_scores(layers, query, keys, score, dim)
    else:
        scores = layers.dot(query.unsqueeze(1), keys, dim) * scale
    weights = ragged_softmax(scores, lengths)
    return weights, context_of(weights, values)


def score_vector(layers: Layers, name: str, dim: int) -> Value:
    return layers.float_weight(f"{name}.weight", layers.weights.take(f"{name}.weight", 1, dim)[0])


def context_of(weights: Value, values: Value) -> Value:
    """Return the sum [batch, dim] of values [batch, length, dim] by weights [batch, length], which
    are zero beyond a row's end. MatMul adds padding as zeros at the end of its sums.
    """
    return (weights.cast(values.dtype).unsqueeze(1) @ values).squeeze(1)


KeyValue = tuple[Value, Value]  # each [batch, kv_heads, length, head_dim]


@dataclass(frozen=True)
class AttentionSizes:
    """The sizes of one attention layer, and what the operator does besides.

    rotary: cos and sin for RoPE. window: the last positions that are attended to, the token's own
    included. cap: scores become cap * tanh(score / cap). sinks: f32 [heads], a score of each head
    that has no value. value_layout: of values that are smaller than keys. Dimensions are those of
    padded heads; `trained_` ones are without padding.
    """

    num_heads: int
    num_kv_heads: int
    layout: HeadLayout
    target: Target
    rotary: tuple[Value, Value] | None = None
    window: int | None = None
    cap: float | None = None
    sinks: Value | None = None
    value_layout: HeadLayout | None = None

    @property
    def head_dim(self) -> int:
        return self.layout.padded_size

    @property
    def scale(self) -> float:
        """The factor of scores."""
        return 1 / math.sqrt(self.layout.size)

    @property
    def trained_query_dim(self) -> int:
        return self.num_heads * self.layout.size

    @property
    def trained_kv_dim(self) -> int:
        return self.num_kv_heads * self.layout.size

    @property
    def output_layout(self) -> HeadLayout:
        """The layout of what attention returns."""
        return self.value_layout or self.layout

    @property
    def query_dim(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.num_kv_heads * self.head_dim

    @property
    def group(self) -> int:
        """The number of heads that share keys and values."""
        return self.num_heads // self.num_kv_heads

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the operator."""
        counts = {"num_heads": self.num_heads, "kv_num_heads": self.num_kv_heads}
        return {**counts, "scale": self.scale, "softcap": self.cap or 0.0}

    def apply_cap(self, scores: Value) -> Value:
        """Limit scores smoothly, if there is a cap."""
        return scores if self.cap is None else (scores / self.cap).tanh() * self.cap

    def states(
        self, name: str, kind: StateKind, layer: int, dtype: str | None = None
    ) -> list[StateSpec]:
        """Return the states of the layer's keys and values: ``self_key.0``, ``self_value.0``.

        dtype: their type, by default that of the target's floats.
        """
        axis = LENGTH if kind is StateKind.APPEND else SOURCE
        shape = (self.num_kv_heads, axis, self.head_dim)
        names = (f"{name}_{part}.{layer}" for part in ("key", "value"))
        dtype = dtype or self.target.dtype
        return [StateSpec(state_name, kind, shape, dtype) for state_name in names]


def self_attention(
    qkv: Value,
    past: KeyValue,
    total_lengths: Value,
    capacity: int,
    heads: AttentionSizes,
    bias: Value | None = None,
) -> tuple[Value, Value, Value]:
    """Attend with qkv [batch, tokens, queries + keys + values]. Return mixed values, next keys and
    values.

    There may be any number of rows with one token each, or one row with several tokens. The longest
    total length may be any bound on it; a constant needs no copy from the GPU. ``bias`` [batch,
    heads, 1, capacity], with one token each, is added to the scores.
    """
    graph, rotary = qkv.graph, heads.rotary or (None, None)
    longest = graph.constant([capacity], "int32")
    attributes = {
        **heads.attributes,
        "do_rotary": int(heads.rotary is not None),
        "local_window_size": heads.window or -1,
    }
    if not heads.target.is_cuda:
        cache_dtype = past[0].dtype
        text = FP16_SELF_ATTENTION if cache_dtype == "float16" else SELF_ATTENTION
        inputs = qkv, *past, total_lengths, longest, *rotary, bias, heads.sinks
        types = "float32", cache_dtype, cache_dtype
        mixed, keys, values = graph.call(parse_function(text), *inputs, types=types, **attributes)
        return mixed, keys, values
    if heads.sinks is not None:
        raise InputError("attention sinks run on CPUs: export them in fp32, int8 or int4")
    inputs = (qkv, None, None, *past, total_lengths - 1, longest, *rotary)
    mixed, keys, values = graph.ms.GroupQueryAttention(*inputs, **attributes, _outputs=3)
    if bias is not None:  # CUDA's operator takes none
        query = graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])[0]
        mixed, _ = _masked_attention(query, (keys, values), total_lengths, heads, bias)
    return mixed, keys, values


def cross_attention(
    query: Value, memory: KeyValue, source_lengths: Value, heads: AttentionSizes
) -> Value:
    """Attend from query [batch, 1, query_dim] to encoder keys and values.

    They are given as a past, with no new keys. ONNX Runtime takes one token per row here.
    """
    if heads.target.is_cuda:
        return _masked_attention(query, memory, source_lengths, heads)[0]
    no_keys = query.graph.ints(0, heads.kv_dim)
    inputs = query, *memory, source_lengths, no_keys
    [output] = query.graph.call(parse_function(CROSS_ATTENTION), *inputs, **heads.attributes)
    return output


def int8_cross_attention(
    query: Value,
    memory: KeyValue,
    source_lengths: Value,
    steps: tuple[Value, Value],
    heads: AttentionSizes,
) -> list[Value]:
    """Attend to int8 keys and values; steps [batch, 1, query_dim] are the values of a level.

    Returns what was found, and the memory, which the operator puts out too: unchanged, and in place
    if it is bound to the same buffer.
    """
    inputs = query, *memory, source_lengths, query.graph.ints(0, heads.kv_dim), *steps
    return query.graph.call(parse_function(INT8_CROSS_ATTENTION), *inputs, **heads.attributes)


def cross_attention_weights(
    query: Value, keys: Value, source_lengths: Value, heads: AttentionSizes
) -> Value:
    """Return the weights f32 [batch, heads, source] of a query [batch, 1, query_dim], 0 beyond a
    row's length, given keys [batch, kv_heads, source, head_dim].

    Scores are summed position by position, as a matrix product's order may depend on how many there
    are.
    """
    if not heads.target.is_cuda:
        sizes = heads.num_kv_heads, heads.group, heads.head_dim
        text = weights_of_source(*sizes, keys.dtype, is_capped=heads.cap is not None)
        inputs, types = (query, keys, source_lengths), ["float32"]
        [weights] = query.graph.call(parse_function(text), *inputs, types=types, **heads.attributes)
        return weights
    queries = split_heads(query, heads).cast("float32") * heads.scale
    grouped = queries.reshape(0, heads.num_kv_heads, heads.group, 1, heads.head_dim)
    sums = (grouped * keys.cast("float32").unsqueeze(2)).sum(-1)
    scores = heads.apply_cap(sums.reshape(0, heads.num_heads, -1))
    within = is_real(scores.max(1, keepdims=False), source_lengths).unsqueeze(1)
    return softmax_within(scores, within)


class SourceTokens:
    """The tokens of padded sources that an encoder computes on, with int32 ``positions`` from 0.

    Linear layers, norms and residual sums compute on each token alone, so they can leave padding
    out. Only attention needs whole rows. On a CPU vectors of the real tokens are packed row after
    row, [tokens, dim]. CUDA's graphs have fixed shapes and keep padding: [batch, source, dim].
    """

    def __init__(self, ids: Value, lengths: Value, target: Target) -> None:
        self._op, self._is_packed, self._lengths = ids.graph.op, not target.is_cuda, lengths
        if self._is_packed:
            op, graph, flat = self._op, ids.graph, ids.graph.ints(-1)
            within = op.Reshape(is_real(ids, lengths), flat).cast("int32")
            last = op.CumSum(within, graph.constant(0, "int64")) - 1
            self._token_at = op.Reshape(last, op.Shape(ids))  # of padding: the row's last token
            self._place_of = op.Reshape(op.NonZero(within), flat)
        self.ids = self.pack_tokens(ids)
        self.positions = self.pack_tokens(positions_from_zero(ids))

    def pack_tokens(self, x: Value) -> Value:
        """Return the tokens' values of x [batch, source]."""
        return self._op.Gather(x.reshape(-1), self._place_of) if self._is_packed else x

    def pack_rows(self, x: Value, dim: int) -> Value:
        """Return the tokens' vectors of x [batch, source, dim]."""
        return self._op.Gather(x.reshape(-1, dim), self._place_of) if self._is_packed else x

    def spread(self, x: Value) -> Value:
        """Return rows [batch, source, dim] of the tokens' vectors; padding repeats numbers of its
        own row.
        """
        return self._op.Gather(x, self._token_at) if self._is_packed else x

    def attend(
        self, qkv: Value, heads: AttentionSizes, bias: Value | None = None
    ) -> tuple[Value, Value | None]:
        """Attend from every token to all tokens of its row, given the tokens' queries, keys and
        values.

        bias: [1 or batch, heads, source, source], added to the scores. Return the tokens' mixed
        values and, on CUDA, the weights f32 [batch, heads, source, source].
        """
        graph = qkv.graph
        if self._is_packed:
            inputs = qkv, self._lengths, self._token_at, self._place_of, bias
            [mixed] = graph.call(
                parse_function(ENCODER_ATTENTION), *inputs, types=[qkv.dtype], **heads.attributes
            )
            return mixed, None
        query, *key_value = graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])
        key, value = (split_heads(part, heads) for part in key_value)
        return _masked_attention(query, (key, value), self._lengths, heads, bias)

    def quantize(self, keys_values: Value, heads: AttentionSizes) -> list[Value]:
        """Return the levels and the steps of the tokens' keys and values; see `quantize_memory`."""
        function = parse_function(quantize_memory(heads.num_kv_heads, heads.head_dim))
        inputs, types = (
            (keys_values, self._lengths, self._token_at),
            ("int8",) * 2 + ("float32",) * 2,
        )
        return keys_values.graph.call(
            function, *inputs, types=types, kv_num_heads=heads.num_kv_heads
        )


def split_heads(x: Value, heads: AttentionSizes) -> Value:
    """Split [batch, length, heads * head_dim] into [batch, heads, length, head_dim]."""
    return x.reshape(0, 0, -1, heads.head_dim).transpose(0, 2, 1, 3)


def _masked_attention(
    query: Value,
    key_value: KeyValue,
    lengths: Value,
    heads: AttentionSizes,
    bias: Value | None = None,
) -> tuple[Value, Value]:
    """Attend by standard operators, for CUDA. There GroupQueryAttention writes present keys and
    values even if they are not used. The softmax is in fp32. Returns mixed values, and the weights.
    """
    keys, values = (_repeat(part, heads) for part in key_value)
    queries = split_heads(query * heads.scale, heads)
    scores = heads.apply_cap((queries @ keys.transpose(0, 1, 3, 2)).cast("float32"))
    if bias is not None:
        scores = scores + bias.cast("float32")
    any_head = scores.max(1, 2, keepdims=False)  # [batch, source], for its shape
    scores = scores.where(is_real(any_head, lengths).unsqueeze(1, 2), LOWEST)
    weights = query.graph.op.Softmax(scores, axis=-1)
    mixed = weights.cast(values.dtype) @ values
    return mixed.transpose(0, 2, 1, 3).reshape(0, 0, heads.query_dim), weights


def _repeat(x: Value, heads: AttentionSizes) -> Value:
    """Return keys or values of every head: [batch, kv_heads, ...] -> [batch, heads, ...]."""
    if heads.group == 1:
        return x
    return x[:, x.graph.ints(*(head // heads.group for head in range(heads.num_heads)))]
