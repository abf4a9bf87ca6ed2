"""How a Transformer's stacks know the order of what they read: vectors, or a bias of scores."""

import math

import numpy as np

from export.graph.writer import Array, Value
from export.layers.attention import count
from export.layers.basic import Layers
from models.configs.translators.transformer import TransformerSizes
from models.layers.buckets import relative_buckets


class Positions:
    """Of one stack; ``encode`` asks for the source's, ``step`` for those of one new token a row."""

    def add_source(self, x: Value, positions: Value) -> Value:
        """x [..., dim] of tokens at int32 ``positions`` [...], as the layers shall see it."""
        return x

    def add_target(self, x: Value, past_lengths: Value) -> Value:
        """x [batch, 1, dim] as the layers shall see it."""
        return x

    def source_bias(self, ids: Value) -> Value | None:
        """Added to scores: [1, heads, source, source]."""
        return None

    def target_bias(self, past_lengths: Value) -> Value | None:
        """Added to scores: [batch, heads, 1, capacity]."""
        return None


class AddedPositions(Positions):
    """Adds rows of a table [positions, dim]."""

    def __init__(self, layers: Layers, name: str, table: Array) -> None:
        self._graph = layers.graph
        self._last = len(table) - 1
        self._table = layers.float_weight(name, table)

    def add_source(self, x: Value, positions: Value) -> Value:
        """What is in the padding may be beyond the table."""
        op, graph = self._graph.op, self._graph
        clipped = op.Min(positions, graph.constant(self._last, "int32"))
        return op.Add(x, op.Gather(self._table, clipped))

    def add_target(self, x: Value, past_lengths: Value) -> Value:
        op = self._graph.op
        positions = op.Unsqueeze(past_lengths, self._graph.ints(1))
        return op.Add(x, op.Gather(self._table, positions))


class RelativePositions(Positions):
    """A scalar per head and offset, in a table [heads, offsets] of -farthest..farthest; what is
    farther off is as far as that.
    """

    def __init__(self, layers: Layers, name: str, table: Array, capacity: int) -> None:
        self._graph = layers.graph
        self._capacity = capacity
        self._farthest = table.shape[1] // 2
        self._table = layers.float_weight(name, table)

    def source_bias(self, ids: Value) -> Value:
        op, graph = self._graph.op, self._graph
        positions = op.Gather(count(graph, ids), graph.constant(0, "int64"), axis=0)  # of any row
        queries = op.Unsqueeze(positions, graph.ints(1))
        return op.Unsqueeze(self._bias(queries, positions), graph.ints(0))

    def target_bias(self, past_lengths: Value) -> Value:
        op, graph = self._graph.op, self._graph
        keys = graph.constant(np.arange(self._capacity), "int32")
        bias = self._bias(op.Unsqueeze(past_lengths, graph.ints(1)), keys)
        return op.Unsqueeze(op.Transpose(bias, perm=[1, 0, 2]), graph.ints(2))

    def _bias(self, queries: Value, keys: Value) -> Value:
        """Positions [queries, 1] and [keys] -> [heads, queries, keys]."""
        op, graph = self._graph.op, self._graph
        offset = op.Add(op.Sub(keys, queries), graph.constant(self._farthest, "int32"))
        # Not Clip, which CUDA has for no integers of 32 bits.
        at_least = op.Max(offset, graph.constant(0, "int32"))
        clipped = op.Min(at_least, graph.constant(2 * self._farthest, "int32"))
        return op.Gather(self._table, clipped, axis=1)


def positions_of(layers: Layers, config: TransformerSizes, stack: str, capacity: int) -> Positions:
    """Those of ``stack``, the encoder or the decoder, for sequences of up to ``capacity``."""
    name = f"{stack}.positions.weight"
    if config.positions == "relative":
        weight = layers.weights.take(name, config.num_buckets, config.num_heads)
        buckets = relative_buckets(
            config.num_buckets, config.max_distance, bidirectional=stack == "encoder"
        )
        return RelativePositions(layers, name, weight[buckets].T, capacity)
    if config.positions == "learned":
        return AddedPositions(layers, name, layers.weights.take(name, capacity, config.d_model))
    return AddedPositions(layers, name, sinusoids(capacity, config.d_model))


def sinusoids(num_positions: int, dim: int) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos (Vaswani et al. 2017, 3.5)."""
    rate = np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angle = np.arange(num_positions)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(num_positions, dim)
