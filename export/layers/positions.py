"""Positions in a Transformer's layers: added vectors, biases of scores, or tables of rotary
embeddings for ONNX Runtime's attention (Su et al. 2021).
"""

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import and_

import numpy as np

from export.graph.writer import Array, Value
from export.layers.attention import LOWEST, AttentionSizes, positions_from_one, split_heads
from export.layers.basic import PAIRS, Layers
from models.configs.transformer import (
    Affine,
    BaseTransformerConfig,
    Learned,
    Linear,
    Relative,
    Sinusoidal,
)
from models.layers.position_tables import linear_slopes, relative_buckets, rotations, sinusoids


class PositionsGraph:
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


class AddedPositions(PositionsGraph):
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


class RelativePositionsGraph(PositionsGraph):
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


class DisentangledPositionsGraph:
    """Adds products of queries and of keys with vectors of the buckets of offsets; see
    `models.layers.positions.DisentangledPositions`.

    Products are computed with the vectors of all `num_buckets`, as a matrix product's order of sums
    may depend on how many there are. `buckets` has those of offsets -farthest..farthest.
    """

    def __init__(
        self,
        layers: Layers,
        ids: Value,
        heads: AttentionSizes,
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


def positions_of_layers(
    layers: Layers, config: BaseTransformerConfig, stack: str, capacity: int
) -> Sequence[PositionsGraph]:
    """Return the positions of every layer of ``stack``, the encoder or the decoder, for up to
    ``capacity`` tokens. Layers with the same biases share one object.
    """
    num_layers = config.encoder_layers if stack == "encoder" else config.decoder_layers
    if not isinstance(config.positions, Relative):
        return [_positions_of(layers, config, stack, capacity)] * num_layers
    name, kind = f"{stack}.positions.weight", config.positions
    weight = layers.weights.take(name, kind.num_buckets, config.num_biases(stack))
    is_encoder = stack == "encoder"
    buckets = relative_buckets(kind.num_buckets, kind.max_distance, bidirectional=is_encoder)
    window = config.imported.encoder_window if is_encoder else None
    tables = np.split(weight[buckets].T, weight.shape[1] // config.num_heads)
    different = [
        RelativePositionsGraph(layers, f"{name}.{i}", _limit_to_window(table, window), capacity)
        for i, table in enumerate(tables)
    ]
    return different if len(different) == num_layers else different * num_layers


def source_biases(positions: Sequence[PositionsGraph], ids: Value) -> list[Value | None]:
    """Return the bias of each layer."""
    biases = {embedding: embedding.source_bias(ids) for embedding in positions}
    return [biases[embedding] for embedding in positions]


def target_biases(positions: Sequence[PositionsGraph], past_lengths: Value) -> list[Value | None]:
    """Return the bias of each layer."""
    biases = {embedding: embedding.target_bias(past_lengths) for embedding in positions}
    return [biases[embedding] for embedding in positions]


_NEVER = -30000.0  # a bias after which no weight is left; it may be added to others


def _limit_to_window(table: Array, window: int | None) -> Array:
    """Return a table that reaches one offset beyond the window, which is never attended to."""
    if window is None:
        return table
    farthest = table.shape[1] // 2
    offsets = np.arange(-window - 1, window + 2).clip(-farthest, farthest)
    table = table[:, offsets + farthest]
    table[:, [0, -1]] = _NEVER
    return table


def _positions_of(
    layers: Layers, config: BaseTransformerConfig, stack: str, capacity: int
) -> PositionsGraph:
    name = f"{stack}.positions.weight"
    take, dim = layers.weights.take, config.d_model
    match config.positions:
        case Learned():
            return AddedPositions(layers, name, take(name, capacity, dim))
        case Affine():
            slope, offset = take(name, 2, dim)
            fractions = np.arange(capacity, dtype=np.float32) / np.float32(capacity)
            return AddedPositions(layers, name, np.outer(fractions, slope) + offset)
        case Sinusoidal():
            return AddedPositions(layers, name, sinusoids(capacity, dim))
        case Linear():
            slopes = np.array(linear_slopes(config.num_heads), np.float32)
            distances = np.abs(np.arange(1 - capacity, capacity, dtype=np.float32))
            return RelativePositionsGraph(layers, name, -np.outer(slopes, distances), capacity)
        case _:
            return PositionsGraph()


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


def rotate(x: Value, positions: Value, tables: tuple[Value, Value], num_heads: int) -> Value:
    """Rotate queries or keys x [batch, tokens, num_heads * head_dim] by ``tables`` of cos and sin,
    as attention over a past does by itself. positions: int64 [batch, tokens].
    """
    cos, sin = tables
    assert cos.bare.shape is not None, "a table has a shape"
    attributes = {"num_heads": num_heads, "rotary_embedding_dim": 2 * cos.bare.shape.numpy()[1]}
    rotated_x: Value = x.graph.ms.RotaryEmbedding(x, positions, cos, sin, **attributes)
    return rotated_x


def reach_bias(ids: Value, window: int | None, *, is_causal: bool) -> Value | None:
    """Return what is added to scores, f32 [1, 1, source, source]: a very low number where a query
    must not attend to a key; None if each attends to all.

    window: the distance from which on keys are too far. is_causal: keys after the query are out.
    """
    if window is None and not is_causal:
        return None
    key = positions_from_one(ids)[0]  # of any row
    query, within = key.unsqueeze(1), list[Value]()
    if window is not None:
        within.append(key > query - window)
    if is_causal:
        within.append(key <= query)
    elif window is not None:
        within.append(key < query + window)
    nothing = ids.graph.constant(0, "float32")
    return nothing.where(reduce(and_, within), LOWEST).unsqueeze(0, 1)


@lru_cache(maxsize=2)  # every layer asks for them
def _tables(
    num_positions: int, frequencies: tuple[float, ...], magnitude: float
) -> tuple[Array, Array]:
    more = ((0, 0), (0, -len(frequencies) % PAIRS))
    cos, sin = rotations(num_positions, frequencies, magnitude)
    return np.pad(cos, more, constant_values=1), np.pad(sin, more)
