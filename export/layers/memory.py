"""Keys and values of the source, which `encode` writes for each decoder layer and `step` reads.

In int8 bundles they are int8; each channel of each row has its own step. With 32 rows of a
Transformer-base and 24 source tokens, a fifth of a step's time went into fetching floats. The steps
are folded into the query and into what the heads find, as q (s k) = (q s) k, so nothing else is
rounded. Models that others quantised keep floats, as they were tuned with them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from export.graph.writer import GraphWriter, Value
from export.layers.attention import (
    AttentionSizes,
    KeyValue,
    SourceTokens,
    cross_attention,
    cross_attention_weights,
    int8_cross_attention,
    is_real,
    positions_from_zero,
    softmax_within,
    split_heads,
)
from serving.bundle.manifest import (
    ATTENDED,
    ATTENTION_OUTPUTS,
    ENCODE_ATTENTION,
    SOURCE,
    STEP_ATTENTION,
    AttentionKind,
    AttentionShape,
    Shape,
    StateKind,
    StateSpec,
)


@dataclass(frozen=True)
class SourceMemory(ABC):
    """The memory of one decoder layer."""

    heads: AttentionSizes
    layer: int

    @property
    @abstractmethod
    def states(self) -> list[StateSpec]:
        """The states that hold the memory."""

    @abstractmethod
    def write(self, graph: GraphWriter, tokens: SourceTokens, keys_values: Value) -> None:
        """Put out the states, given the tokens' keys and values side by side, 2 * kv_dim."""

    @abstractmethod
    def read(self, graph: GraphWriter) -> "ReadMemory":
        """Declare the states as inputs."""

    def _state(self, name: str, shape: tuple[int | str, ...], dtype: str) -> StateSpec:
        return StateSpec(f"cross_{name}.{self.layer}", StateKind.CONSTANT, shape, dtype)


class ReadMemory(ABC):
    """A memory in the step graph; queries are [batch, 1, query_dim]."""

    @abstractmethod
    def attend(self, query: Value, lengths: Value) -> Value:
        """Return what each head finds: [batch, 1, query_dim]."""

    @abstractmethod
    def weights(self, query: Value, lengths: Value) -> Value:
        """Return each head's weights over the source: f32 [batch, heads, source]."""


class FloatMemory(SourceMemory):
    @property
    def states(self) -> list[StateSpec]:
        return self.heads.states("cross", StateKind.CONSTANT, self.layer)

    def write(self, graph: GraphWriter, tokens: SourceTokens, keys_values: Value) -> None:
        per_head = split_heads(tokens.spread(keys_values), self.heads)
        sizes = graph.ints(self.heads.num_kv_heads, self.heads.num_kv_heads)
        parts = graph.op.Split(per_head, sizes, axis=1, _outputs=2)
        for state, part in zip(self.states, parts, strict=True):
            graph.state_output(state, part)

    def read(self, graph: GraphWriter) -> "ReadFloats":
        key, value = map(graph.state_input, self.states)
        return ReadFloats(self.heads, (key, value))


class ReadFloats(ReadMemory):
    def __init__(self, heads: AttentionSizes, memory: KeyValue) -> None:
        self._heads, self._memory = heads, memory

    def attend(self, query: Value, lengths: Value) -> Value:
        return cross_attention(query, self._memory, lengths, self._heads)

    def weights(self, query: Value, lengths: Value) -> Value:
        return cross_attention_weights(query, self._memory[0], lengths, self._heads)


class Int8Memory(SourceMemory):
    """Keeps keys and values in int8 and their scales: ``cross_key.0``, ``cross_key_step.0``."""

    @property
    def states(self) -> list[StateSpec]:
        shape = (self.heads.num_kv_heads, SOURCE, self.heads.head_dim)
        steps = (1, self.heads.kv_dim)
        return [
            self._state("key", shape, "int8"),
            self._state("value", shape, "int8"),
            self._state("key_step", steps, "float32"),
            self._state("value_step", steps, "float32"),
        ]

    def write(self, graph: GraphWriter, tokens: SourceTokens, keys_values: Value) -> None:
        written = tokens.quantize(keys_values, self.heads)
        for state, next_value in zip(self.states, written, strict=True):
            graph.state_output(state, next_value)

    def read(self, graph: GraphWriter) -> "ReadInt8":
        return ReadInt8(graph, self.heads, self.states)


class ReadInt8(ReadMemory):
    def __init__(self, graph: GraphWriter, heads: AttentionSizes, states: list[StateSpec]) -> None:
        self._graph, self._heads = graph, heads
        self._quantised_states = states[:2]
        key, value, key_step, value_step = map(graph.state_input, states)
        self._memory = key, value
        self._key_step, self._value_step = map(self._per_head, (key_step, value_step))

    def attend(self, query: Value, lengths: Value) -> Value:
        steps = self._key_step, self._value_step
        output, *quantised = int8_cross_attention(query, self._memory, lengths, steps, self._heads)
        for state, value in zip(self._quantised_states, quantised, strict=True):
            self._graph.next_state(state, value)
        return output

    def weights(self, query: Value, lengths: Value) -> Value:
        scaled_query = query * self._key_step
        return cross_attention_weights(scaled_query, self._memory[0], lengths, self._heads)

    def _per_head(self, step: Value) -> Value:
        """Repeat steps [batch, 1, kv_dim] for heads that share keys: [batch, 1, query_dim]."""
        heads = self._heads
        if heads.group == 1:
            return step
        columns = np.arange(heads.kv_dim).reshape(heads.num_kv_heads, 1, heads.head_dim)
        spread = np.broadcast_to(columns, (heads.num_kv_heads, heads.group, heads.head_dim))
        return step[:, :, self._graph.ints(*spread.ravel().tolist())]


ONE_HEAD = AttentionShape(1, 1)


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

    def attend_to_source(self, query: Value, memory: "ReadMemory", lengths: Value) -> Value:
        """Return what a decoder layer's heads find in the source. If the graph puts out attention,
        the weights are computed beside the operator that mixes the values, so that all other
        results stay the same.
        """
        if self.is_on:
            self.add(AttentionKind.CROSS, memory.weights(query, lengths))
        return memory.attend(query, lengths)

    def add(self, kind: AttentionKind, weights: Value) -> None:
        """Add one layer's weights f32 [batch, heads, tokens, positions], of cross-attention without
        the tokens.
        """
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


def encoder_attention_weights(
    qkv: Value, lengths: Value, heads: AttentionSizes, bias: Value | None
) -> Value:
    """Return the weights of each position over the real positions of its row: f32 [batch, heads,
    source, source]; see `export.layers.attention.SourceTokens.attend`.
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
    heads: AttentionSizes
    bias: Value | None = None

    def none(self, qkv: Value) -> Value:
        """Return weights of no positions: f32 [batch, heads, tokens, 0]."""
        return split_heads(self._query(qkv), self.heads)[:, :, :, :0].cast("float32")

    def weights(self, qkv: Value, keys: Value) -> Value:
        """Return weights f32 [batch, heads, tokens, attended] of tokens, qkv [batch, tokens, all],
        over positions so far, their own included. keys: [batch, kv_heads, capacity, head_dim].
        """
        heads, query = self.heads, self._query(qkv)
        like = query.cast("float32").max(-1, keepdims=False)  # CUDA has no maximum of bf16
        query_positions = positions_from_zero(like) + self.past_lengths.unsqueeze(1)
        queries = _rotate_queries(split_heads(query, heads), query_positions, heads)
        scores = _scores(queries, keys[:, :, : self.attended], heads)
        if self.bias is not None:
            scores = scores + self.bias[:, :, :, : self.attended].cast("float32")
        sinks = None if heads.sinks is None else heads.sinks.reshape(1, -1, 1, 1)
        return softmax_within(scores, self._mask_positions(scores, query_positions), sinks)

    def _query(self, qkv: Value) -> Value:
        heads = self.heads
        query: Value = qkv.graph.split(qkv, [heads.query_dim, heads.kv_dim, heads.kv_dim])[0]
        return query

    def _mask_positions(self, scores: Value, query_positions: Value) -> Value:
        """Return which positions each token may attend to: [batch, 1, tokens, attended]."""
        others = positions_from_zero(_any_query(scores)).unsqueeze(1)
        query_positions = query_positions.unsqueeze(2)
        within = others <= query_positions
        if self.heads.window is not None:
            within = within & (others > query_positions - self.heads.window)
        return within.unsqueeze(1)


def _scores(queries: Value, keys: Value, heads: AttentionSizes) -> Value:
    """Return scores f32 [batch, heads, tokens, positions] of queries [batch, heads, tokens,
    head_dim] and keys [batch, kv_heads, positions, head_dim].
    """
    queries = queries.cast("float32") * heads.scale
    if heads.group > 1:
        queries = queries.reshape(0, heads.num_kv_heads, -1, heads.head_dim)
    scores = heads.apply_cap(queries @ keys.cast("float32").transpose(0, 1, 3, 2))
    return scores.reshape(0, heads.num_heads, -1, 0) if heads.group > 1 else scores


def _rotate_queries(queries: Value, positions: Value, heads: AttentionSizes) -> Value:
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
