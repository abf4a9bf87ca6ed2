"""Positions in a Transformer's layers: added vectors, biases of scores, or tables of rotary
embeddings for ONNX Runtime's attention (Su et al. 2021).
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from export.graph.writer import Array, Value
from export.layers.attention import Heads, positions_from_one, split_heads
from export.layers.basic import PAIRS, Layers
from models.configs.transformer import (
    BaseTransformerConfig,
    Learned,
    Linear,
    NoPositions,
    Relative,
    Sinusoidal,
)
from models.layers.position_tables import linear_slopes, relative_buckets, rotations, sinusoids


class Positions:
    """The positions of one stack: in ``encode`` those of the source, in ``step`` of one new token a
    row. This base changes nothing.
    """

    def add_source(self, x: Value, positions: Value) -> Value:
        """Return x [..., dim] of tokens at int32 ``positions`` [...] as the layers read it."""
        return x

    def add_target(self, x: Value, past_lengths: Value) -> Value:
        """Return x [batch, 1, dim] as the layers read it."""
        return x

    def source_bias(self, ids: Value) -> Value | None:
        """Return what is added to scores: [1, heads, source, source]."""
        return None

    def target_bias(self, past_lengths: Value) -> Value | None:
        """Return what is added to scores: [batch, heads, 1, capacity]."""
        return None


class AddedPositions(Positions):
    """Adds rows of a table [positions, dim]."""

    def __init__(self, layers: Layers, name: str, table: Array) -> None:
        self._graph = layers.graph
        self._last = len(table) - 1
        self._table = layers.float_weight(name, table)

    def add_source(self, x: Value, positions: Value) -> Value:
        """Add the table's rows; positions of padding may be beyond the last."""
        return x + self._graph.op.Gather(self._table, positions.minimum(self._last))

    def add_target(self, x: Value, past_lengths: Value) -> Value:
        return x + self._graph.op.Gather(self._table, past_lengths.unsqueeze(1))


class RelativePositions(Positions):
    """Adds a number per head and offset, from a table [heads, offsets] of -farthest..farthest.
    Larger offsets have that of the farthest.
    """

    def __init__(self, layers: Layers, name: str, table: Array, capacity: int) -> None:
        self._graph = layers.graph
        self._capacity = capacity
        self._farthest = table.shape[1] // 2
        self._table = layers.float_weight(name, table)

    def source_bias(self, ids: Value) -> Value:
        positions = positions_from_one(ids)[0]  # of any row
        return self._bias(positions.unsqueeze(1), positions).unsqueeze(0)

    def target_bias(self, past_lengths: Value) -> Value:
        keys = self._graph.constant(np.arange(self._capacity), "int32")
        return self._bias(past_lengths.unsqueeze(1), keys).transpose(1, 0, 2).unsqueeze(2)

    def _bias(self, queries: Value, keys: Value) -> Value:
        """Return biases [heads, queries, keys] of positions [queries, 1] and [keys]."""
        offset = keys - queries + self._farthest
        # CUDA has no Clip for integers of 32 bits.
        return self._table[:, offset.maximum(0).minimum(2 * self._farthest)]


class DisentangledPositions:
    """Adds products of queries and of keys with vectors of the buckets of offsets; see
    `models.layers.positions.DisentangledPositions`.

    Products are computed with the vectors of all `num_buckets`, as a matrix product's order of sums
    may depend on how many there are. `buckets` has those of offsets -farthest..farthest.
    """

    def __init__(
        self,
        layers: Layers,
        ids: Value,
        heads: Heads,
        num_buckets: int,
        buckets: Sequence[int],
        *,
        has_keys: bool,
        has_queries: bool,
    ) -> None:
        self._layers, self._heads, self._num_buckets = layers, heads, num_buckets
        self._has_keys, self._has_queries = has_keys, has_queries
        farthest = len(buckets) // 2
        positions = positions_from_one(ids)
        offset = positions[0].unsqueeze(1) - positions[0] + farthest  # of any row
        table = layers.graph.constant(buckets, "int32")
        bucket = layers.op.Gather(table, offset.maximum(0).minimum(2 * farthest))
        # A sum gives them the axes of rows and heads, as CUDA refuses what needs a Shape.
        zeros = (positions * 0).unsqueeze(1, 3) + layers.graph.constant(
            np.zeros((heads.num_heads, 1, 1)), "int32"
        )
        self._of_queries, self._of_keys = zeros + bucket, zeros + bucket.transpose(1, 0)

    def bias(self, qkv: Value, layer: str) -> Value:
        """Return what is added to scores, [batch, heads, source, source], of queries, keys and
        values [batch, source, all].
        """
        heads = self._heads
        dims = [heads.query_dim, heads.kv_dim, heads.kv_dim]
        query, key, _ = self._layers.graph.split(qkv, dims)
        terms = []
        if self._has_keys:
            terms.append(self._products(query, f"{layer}.positions.keys", self._of_queries))
        if self._has_queries:
            products = self._products(key, f"{layer}.positions.queries", self._of_keys)
            terms.append(products.transpose(0, 1, 3, 2))
        return sum(terms[1:], terms[0])

    def _products(self, x: Value, name: str, buckets: Value) -> Value:
        """Return the products of x [batch, source, heads * head_dim] with the vectors of
        `buckets` [batch, heads, source, source].
        """
        heads, layers = self._heads, self._layers
        vectors = layers.weights.take(f"{name}.weight", self._num_buckets, heads.trained_query_dim)
        by_head = heads.layout.spread(vectors.T).reshape(heads.num_heads, heads.head_dim, -1)
        table = layers.float_weight(f"{name}.by_head", by_head)
        return layers.op.GatherElements(split_heads(x, heads) @ table, buckets, axis=-1)


def positions_of(
    layers: Layers, config: BaseTransformerConfig, stack: str, capacity: int
) -> Positions:
    """Return the positions of ``stack``, the encoder or the decoder, for up to ``capacity``
    tokens.
    """
    name = f"{stack}.positions.weight"
    take, dim = layers.weights.take, config.d_model
    match config.positions:
        case Relative(num_buckets=num_buckets, max_distance=farthest):
            buckets = relative_buckets(num_buckets, farthest, bidirectional=stack == "encoder")
            weight = take(name, num_buckets, config.num_heads)
            return RelativePositions(layers, name, weight[buckets].T, capacity)
        case Learned():
            return AddedPositions(layers, name, take(name, capacity, dim))
        case Sinusoidal():
            return AddedPositions(layers, name, sinusoids(capacity, dim))
        case Linear():
            slopes = np.array(linear_slopes(config.num_heads), np.float32)
            distances = np.abs(np.arange(1 - capacity, capacity, dtype=np.float32))
            return RelativePositions(layers, name, -np.outer(slopes, distances), capacity)
        case NoPositions():
            return Positions()


def rotary_tables(
    layers: Layers, num_positions: int, frequencies: Sequence[float], magnitude: float, name: str
) -> tuple[Value, Value] | None:
    """Return cos and sin of position * frequency, times ``magnitude``: each [positions, pairs];
    None without frequencies. The operator rotates as many pairs of a head as the tables are wide;
    pairs that `HeadLayout` adds are not turned.
    """
    if not frequencies:
        return None
    cos, sin = _tables(num_positions, tuple(frequencies), magnitude)
    return layers.float_weight(f"{name}.cos", cos), layers.float_weight(f"{name}.sin", sin)


@lru_cache(maxsize=2)  # every layer asks for them
def _tables(
    num_positions: int, frequencies: tuple[float, ...], magnitude: float
) -> tuple[Array, Array]:
    more = ((0, 0), (0, -len(frequencies) % PAIRS))
    cos, sin = rotations(num_positions, frequencies, magnitude)
    return np.pad(cos, more, constant_values=1), np.pad(sin, more)
