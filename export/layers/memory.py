"""Keys and values of the source, which `encode` writes for each decoder layer and `step` reads.

In int8 bundles they are int8; each channel of each row has its own step. With 32 rows of a
Transformer-base and 24 source tokens, a fifth of a step's time went into fetching floats. The steps
are folded into the query and into what the heads find, as q (s k) = (q s) k, so nothing else is
rounded. Models that others quantised keep floats, as they were tuned with them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from export.graph.quantise import LEVELS
from export.graph.value import Value
from export.graph.writer import GraphWriter
from export.layers.attention import (
    Heads,
    KeyValue,
    attention_scores,
    cross_attention,
    int8_cross_attention,
    split_heads,
)
from export.layers.attention_outputs import AttentionOutputs
from export.layers.ragged import is_real, softmax_within
from serving.bundle.manifest import SOURCE, AttentionKind, AttentionShape, StateKind, StateSpec


@dataclass(frozen=True)
class SourceMemory(ABC):
    """The memory of one decoder layer."""

    heads: Heads
    layer: int

    @property
    @abstractmethod
    def states(self) -> list[StateSpec]:
        """The states that hold the memory."""

    @abstractmethod
    def write(self, graph: GraphWriter, keys_values: Value) -> None:
        """Put out the states, given keys and values side by side [batch, source, 2 * kv_dim]. For
        int8 the padding must only have numbers that its row has too.
        """

    @abstractmethod
    def read(self, graph: GraphWriter) -> "ReadMemory":
        """Declare the states as inputs."""

    def _put_out(self, graph: GraphWriter, states: list[StateSpec], per_head: Value) -> None:
        """Put out keys and values [batch, 2 * kv_heads, source, head_dim]."""
        sizes = graph.ints(self.heads.num_kv_heads, self.heads.num_kv_heads)
        parts = graph.op.Split(per_head, sizes, axis=1, _outputs=2)
        for state, part in zip(states, parts, strict=True):
            graph.state_output(state, part)

    def _state(self, name: str, shape: tuple[int | str, ...], dtype: str) -> StateSpec:
        return StateSpec(f"cross_{name}.{self.layer}", StateKind.CONSTANT, shape, dtype)


class ReadMemory(ABC):
    """A memory in the step graph; queries are [batch, 1, query_dim]."""

    @abstractmethod
    def attend(self, query: Value, lengths: Value) -> Value:
        """Return what each head finds: [batch, 1, query_dim]."""

    @abstractmethod
    def scores(self, query: Value) -> Value:
        """Return scores of the source before the softmax: f32 [batch, heads, source]."""


class FloatMemory(SourceMemory):
    @property
    def states(self) -> list[StateSpec]:
        return self.heads.states("cross", StateKind.CONSTANT, self.layer)

    def write(self, graph: GraphWriter, keys_values: Value) -> None:
        self._put_out(graph, self.states, split_heads(keys_values, self.heads))

    def read(self, graph: GraphWriter) -> "ReadFloats":
        key, value = map(graph.state_input, self.states)
        return ReadFloats(self.heads, (key, value))


class ReadFloats(ReadMemory):
    def __init__(self, heads: Heads, memory: KeyValue) -> None:
        self._heads, self._memory = heads, memory

    def attend(self, query: Value, lengths: Value) -> Value:
        return cross_attention(query, self._memory, lengths, self._heads)

    def scores(self, query: Value) -> Value:
        return attention_scores(query, self._memory[0], self._heads)


class Int8Memory(SourceMemory):
    """Keeps levels and the value of a level as states: ``cross_key.0``, ``cross_key_step.0``."""

    @property
    def states(self) -> list[StateSpec]:
        levels = (self.heads.num_kv_heads, SOURCE, self.heads.head_dim)
        steps = (1, self.heads.kv_dim)
        return [
            self._state("key", levels, "int8"),
            self._state("value", levels, "int8"),
            self._state("key_step", steps, "float32"),
            self._state("value_step", steps, "float32"),
        ]

    def write(self, graph: GraphWriter, keys_values: Value) -> None:
        levels, steps = _quantise(keys_values)
        self._put_out(graph, self.states[:2], split_heads(levels, self.heads))
        for state, step in zip(
            self.states[2:], graph.split(steps, [self.heads.kv_dim] * 2), strict=True
        ):
            graph.state_output(state, step)

    def read(self, graph: GraphWriter) -> "ReadInt8":
        return ReadInt8(graph, self.heads, self.states)


def _quantise(x: Value) -> tuple[Value, Value]:
    """Return int8 levels of x [batch, source, dim], and the value of a level [batch, 1, dim] for
    each channel of a row, by its largest magnitude.
    """
    graph = x.graph
    largest = x.abs().max(1, keepdims=True)
    unit = graph.constant(1 / LEVELS, "float32")
    # In a channel of zeros 0 / 0 gives any level; the step, 0, makes it 0 again.
    levels = graph.op.QuantizeLinear(x / largest, unit, graph.constant(0, "int8"))
    return levels, largest * unit


class ReadInt8(ReadMemory):
    def __init__(self, graph: GraphWriter, heads: Heads, states: list[StateSpec]) -> None:
        self._graph, self._heads = graph, heads
        self._levels = states[:2]
        key, value, key_step, value_step = map(graph.state_input, states)
        self._memory = key, value
        self._key_step, self._value_step = map(self._per_head, (key_step, value_step))

    def attend(self, query: Value, lengths: Value) -> Value:
        scaled = query * self._key_step
        mixed, *levels = int8_cross_attention(scaled, self._memory, lengths, self._heads)
        for state, each in zip(self._levels, levels, strict=True):
            self._graph.next_state(state, each)
        return mixed * self._value_step

    def scores(self, query: Value) -> Value:
        keys = self._memory[0].cast("float32")
        return attention_scores(query * self._key_step, keys, self._heads)

    def _per_head(self, step: Value) -> Value:
        """Repeat steps [batch, 1, kv_dim] for heads that share keys: [batch, 1, query_dim]."""
        heads = self._heads
        if heads.group == 1:
            return step
        columns = np.arange(heads.kv_dim).reshape(heads.num_kv_heads, 1, heads.head_dim)
        spread = np.broadcast_to(columns, (heads.num_kv_heads, heads.group, heads.head_dim))
        return step[:, :, self._graph.ints(*spread.ravel().tolist())]


class CrossAttention:
    """Attention to the source, for all layers of one step graph.

    If the graph puts out attention, the weights of all layers' heads are computed a second time,
    beside the operator that mixes the values, so that all other results stay the same.
    """

    def __init__(
        self, attention_outputs: AttentionOutputs, heads: Heads, source_lengths: Value
    ) -> None:
        self._attention_outputs, self._heads, self._source_lengths = (
            attention_outputs,
            heads,
            source_lengths,
        )
        self._scores: list[Value] = []

    def attend(self, query: Value, memory: ReadMemory) -> Value:
        if self._attention_outputs.is_on:
            self._scores.append(memory.scores(query))
        return memory.attend(query, self._source_lengths)

    def finish(self) -> None:
        """Put out the weights, if the graph does, after all layers are written."""
        if not self._attention_outputs.is_on:
            return
        any_head = self._scores[0].max(1, keepdims=False)  # for its shape
        within = is_real(any_head, self._source_lengths).unsqueeze(1)
        attention = softmax_within(any_head.graph.op.Concat(*self._scores, axis=1), within)
        shape = AttentionShape(len(self._scores), self._heads.num_heads)
        self._attention_outputs.put(AttentionKind.CROSS, attention, shape)
