"""Keys and values of the source, as `encode` leaves them to a decoder layer and `step` reads them.

In int8 bundles they are int8, each channel of each row with its own step: with 32 rows of a
Transformer-base and 24 source tokens a fifth of a step's time went into fetching floats. The steps
fold into the query and into what the heads find, as q (s k) = (q s) k, so nothing else is rounded.
Models that were quantised by others keep floats there, as they were tuned with them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from export.graph.quantise import LEVELS
from export.graph.writer import GraphWriter, Value
from export.layers.attention import (
    Heads,
    KeyValue,
    attention_scores,
    cross_attention,
    int8_cross_attention,
    split_heads,
)
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


@dataclass(frozen=True)
class SourceMemory(ABC):
    """The memory of one decoder layer."""

    heads: Heads
    layer: int

    @property
    @abstractmethod
    def states(self) -> list[StateSpec]:
        """What is kept of it."""

    @abstractmethod
    def write(self, graph: GraphWriter, keys_values: Value) -> None:
        """Put out the states, of keys and values side by side [batch, source, 2 * kv_dim]. Int8
        memories want no number in the padding that its row does not have.
        """

    @abstractmethod
    def read(self, graph: GraphWriter) -> "ReadMemory":
        """Take the states as inputs."""

    def _put_out(self, graph: GraphWriter, states: list[StateSpec], per_head: Value) -> None:
        """Keys and values [batch, 2 * kv_heads, source, head_dim]."""
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
        """What each head finds [batch, 1, query_dim]."""

    @abstractmethod
    def scores(self, query: Value) -> Value:
        """f32 [batch, heads, source], before the softmax."""


class FloatMemory(SourceMemory):
    @property
    def states(self) -> list[StateSpec]:
        return self.heads.states("cross", StateKind.CONSTANT, self.layer)

    def write(self, graph: GraphWriter, keys_values: Value) -> None:
        self._put_out(graph, self.states, split_heads(graph, keys_values, self.heads))

    def read(self, graph: GraphWriter) -> "ReadFloats":
        key, value = map(graph.state_input, self.states)
        return ReadFloats(graph, self.heads, (key, value))


class ReadFloats(ReadMemory):
    def __init__(self, graph: GraphWriter, heads: Heads, memory: KeyValue) -> None:
        self._graph, self._heads, self._memory = graph, heads, memory

    def attend(self, query: Value, lengths: Value) -> Value:
        return cross_attention(self._graph, query, self._memory, lengths, self._heads)

    def scores(self, query: Value) -> Value:
        return attention_scores(self._graph, query, self._memory[0], self._heads)


class Int8Memory(SourceMemory):
    """Its states are levels, and what a level is worth: ``cross_key.0``, ``cross_key_step.0``."""

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
        levels, steps = _quantise(graph, keys_values)
        self._put_out(graph, self.states[:2], split_heads(graph, levels, self.heads))
        for state, step in zip(
            self.states[2:], graph.split(steps, [self.heads.kv_dim] * 2), strict=True
        ):
            graph.state_output(state, step)

    def read(self, graph: GraphWriter) -> "ReadInt8":
        return ReadInt8(graph, self.heads, self.states)


def _quantise(graph: GraphWriter, x: Value) -> tuple[Value, Value]:
    """x [batch, source, dim] -> int8 levels, and a level's worth [batch, 1, dim] of each channel of
    a row, by its largest magnitude.
    """
    op = graph.op
    largest = op.ReduceMax(op.Abs(x), graph.ints(1), keepdims=1)
    unit = graph.constant(1 / LEVELS, "float32")
    # In a channel of zeros 0/0 becomes some level, which the step, 0, makes 0 again.
    levels = op.QuantizeLinear(op.Div(x, largest), unit, graph.constant(0, "int8"))
    return levels, op.Mul(largest, unit)


class ReadInt8(ReadMemory):
    def __init__(self, graph: GraphWriter, heads: Heads, states: list[StateSpec]) -> None:
        self._graph, self._heads = graph, heads
        self._levels = states[:2]
        key, value, key_step, value_step = map(graph.state_input, states)
        self._memory = key, value
        self._key_step, self._value_step = map(self._per_head, (key_step, value_step))

    def attend(self, query: Value, lengths: Value) -> Value:
        op = self._graph.op
        scaled = op.Mul(query, self._key_step)
        mixed, *levels = int8_cross_attention(
            self._graph, scaled, self._memory, lengths, self._heads
        )
        for state, each in zip(self._levels, levels, strict=True):
            self._graph.next_state(state, each)
        return op.Mul(mixed, self._value_step)

    def scores(self, query: Value) -> Value:
        op = self._graph.op
        keys = op.Cast(self._memory[0], to=1)
        scaled = op.Mul(query, self._key_step)
        return attention_scores(self._graph, scaled, keys, self._heads)

    def _per_head(self, step: Value) -> Value:
        """[batch, 1, kv_dim] -> [batch, 1, query_dim]: heads that share keys share their steps."""
        heads = self._heads
        if heads.group == 1:
            return step
        columns = np.arange(heads.kv_dim).reshape(heads.num_kv_heads, 1, heads.head_dim)
        spread = np.broadcast_to(columns, (heads.num_kv_heads, heads.group, heads.head_dim))
        return self._graph.op.Gather(step, self._graph.ints(*spread.ravel().tolist()), axis=2)
