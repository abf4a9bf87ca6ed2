"""Layers that architectures share, as ONNX nodes in one graph and one precision.

Every layer keeps rows apart: what a row yields never depends on the batch size, on padding or on
the other rows. The tests check this to the bit.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice

import numpy as np

from export.graph.blocks import BlockQuantiser
from export.graph.choice import Columns, choose, choose_on_device
from export.graph.matrix import Matrix, Part
from export.graph.model import TARGETS, Weights
from export.graph.quantise import ChannelScales, RowQuantiser
from export.graph.writer import Array, GraphWriter, Value
from models.configs.transformer import GateLimits
from models.layers.equations import apply_gate
from serving.bundle.manifest import Precision, StateKind, StateSpec

ALIGNED = 4  # numbers from one aligned address to the next


@dataclass(frozen=True)
class HeadLayout:
    """The positions of the numbers of a trained head in a head padded to ``padded_size``.

    ONNX Runtime's attention needs head sizes that are certain multiples, and rotates certain
    multiples of pairs. Heads are padded with zeros, which add nothing to scores; the padded
    positions of values meet zeros in the output layer. Scores keep the scale of the trained size.
    """

    places: tuple[int, ...]
    padded_size: int

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def share(self) -> float:
        """The part of a padded head that is not padding."""
        return self.size / self.padded_size

    def split(self, number: int) -> "tuple[HeadLayout, HeadLayout]":
        """Return the layouts of the first ``number`` of a head's numbers, and of the others."""
        first, rest = self.places[:number], self.places[number:]
        return HeadLayout(first, self.padded_size), HeadLayout(rest, self.padded_size)

    def with_first(self, size: int) -> "HeadLayout":
        """Return the layout of heads of ``size`` numbers that do not rotate, as long as these."""
        return HeadLayout(tuple(range(size)), self.padded_size)

    @property
    def is_plain(self) -> bool:
        """Whether heads lie as they were trained."""
        return self.places == tuple(range(self.padded_size))

    def padded(self, dim: int) -> int:
        """Return the size of heads of ``dim`` numbers together, with their padding."""
        return dim // self.size * self.padded_size

    def spread(self, weight: Array) -> Array:
        """Pad weights [heads * size, ...] to [heads * padded_size, ...]."""
        if self.is_plain:
            return weight
        heads = weight.reshape(-1, self.size, *weight.shape[1:])
        padded = np.zeros((len(heads), self.padded_size, *weight.shape[1:]), weight.dtype)
        padded[:, self.places] = heads
        return padded.reshape(-1, *weight.shape[1:])


class Layers:
    """Adds layers to ``graph``; weights come from ``weights`` by state-dict name.

    in_blocks: int8 is by blocks of weights, for models that are run with few rows; int4 always is.
    """

    def __init__(
        self, graph: GraphWriter, weights: Weights, precision: Precision, *, in_blocks: bool = False
    ) -> None:
        self.graph = graph
        graph.store, graph.shared = weights.store, weights.shared
        self.op = graph.op
        self.weights = weights
        self.target = TARGETS[precision]
        self.dtype = self.target.dtype
        self._blocks, self._quantiser = None, None
        if precision is Precision.INT4 or (precision is Precision.INT8 and in_blocks):
            self._blocks = BlockQuantiser(
                graph, 4 if precision is Precision.INT4 else 8, weights.outliers
            )
        elif precision is Precision.INT8:
            self._quantiser = RowQuantiser(graph)

    @property
    def quantiser(self) -> RowQuantiser | None:
        """The quantiser of linear layers, if they are computed in row-wise int8."""
        return self._quantiser

    def state(self, name: str, kind: StateKind, *shape: int | str) -> StateSpec:
        """Return a state in floats."""
        return StateSpec(name, kind, shape, self.dtype)

    def float_weight(self, name: str, array: Array) -> Value:
        return self.graph.weight(name, array.astype(self.dtype))

    def project(
        self,
        x: Value,
        name: str,
        weight: Array,
        bias: Array | None = None,
        channels: ChannelScales | None = None,
    ) -> Value:
        """Multiply x [..., in] by weight [out, in] transposed and add bias [out]: [..., out].

        channels: how the weight is quantised in its source, if it is.
        """
        return self._multiply(x, name, Matrix.of_array(weight), bias, channels)

    def linear(
        self,
        x: Value,
        names: Sequence[str],
        in_dim: int,
        out_dims: Sequence[int],
        *,
        bias: bool,
        into: HeadLayout | None = None,
        out_of: HeadLayout | None = None,
    ) -> Value:
        """Apply the linear layers ``names`` to one input, side by side: [..., sum(out_dims)].

        into, out_of: how heads lie in the output, and in x. Dimensions are without their padding.
        """
        sizes = list(zip(names, out_dims, strict=True))

        def read_parts() -> list[Part]:
            return [self._read_part(name, out, in_dim, into, out_of) for name, out in sizes]

        biases = [self.weights.take(f"{name}.bias", out) for name, out in sizes if bias]
        if into is not None:
            biases = [into.spread(part) for part in biases]
            out_dims = [into.padded(dim) for dim in out_dims]
        shape = sum(out_dims), in_dim if out_of is None else out_of.padded(in_dim)
        channels = self.weights.channels([f"{name}.weight" for name in names], out_dims)
        joined = np.concatenate(biases) if bias else None
        return self._multiply(x, "+".join(names), Matrix(shape, read_parts), joined, channels)

    def score(
        self,
        x: Value,
        name: str,
        table: Matrix,
        bias: Array | None = None,
        channels: ChannelScales | None = None,
    ) -> Value:
        """Project x onto the words of a vocabulary, as ``project`` does, but never in less than 8
        bits, so that a table can be stored once for this and ``embed``.
        """
        if self._blocks is not None:
            return self._blocks.score(x, name, table, bias)
        return self._multiply(x, name, table, bias, channels)

    def table(self, name: str, num_rows: int, dim: int) -> Matrix:
        """Return the weight ``name`` [num_rows, dim]."""
        return Matrix((num_rows, dim), lambda: [self._read_part(name, num_rows, dim)])

    def embed(self, ids: Value, name: str, num_rows: int, dim: int, scale: float = 1.0) -> Value:
        """Return rows of an embedding, times ``scale``, which is folded into a table of floats."""
        table = self.table(name, num_rows, dim)
        channels = self.weights.channels([f"{name}.weight"], [num_rows])
        if self._quantiser is not None and channels is not None:
            return self._quantiser.lookup(ids, name, table, channels, scale)
        if self._blocks is None:
            return self.lookup(ids, f"{name}.table", table.read() * np.float32(scale))
        rows = self._blocks.lookup(ids, name, table)
        return rows if scale == 1.0 else rows * scale

    def _read_part(
        self,
        name: str,
        out_dim: int,
        in_dim: int,
        into: HeadLayout | None = None,
        out_of: HeadLayout | None = None,
    ) -> Part:
        """Read the weight ``name`` with the heads' padding: in the blocks of its source if that has
        any, and products are computed in blocks.
        """
        is_padded = out_of is not None and not out_of.is_plain
        if self._blocks is not None and not is_padded:
            blocks = self.weights.take_blocks(f"{name}.weight", out_dim, in_dim)
            if blocks is not None:
                return blocks if into is None else blocks.change_rows(into.spread)
        weight = self.weights.take(f"{name}.weight", out_dim, in_dim)
        weight = weight if into is None else into.spread(weight)
        return weight if out_of is None else out_of.spread(weight.T).T

    def _multiply(
        self,
        x: Value,
        name: str,
        weight: Matrix,
        bias: Array | None,
        channels: ChannelScales | None,
    ) -> Value:
        if self._blocks is not None:
            return self._blocks.linear(x, name, weight, bias)
        if self._quantiser is not None:
            return self._quantiser.linear(x, name, weight, bias, channels)
        transposed = f"{name}.transposed"

        def transpose() -> dict[str, Array]:
            return {transposed: weight.read().T.astype(self.dtype)}

        key = transposed if weight.is_shared else None
        y = x @ self.graph.weights(key, transpose)[transposed]
        return y if bias is None else y + self.float_weight(f"{name}.bias", bias)

    def observe(self, x: Value, name: str, dim: int) -> None:
        """Put out how large each input x [batch, ..., dim] of the matrix ``name`` is."""
        assert self._blocks is not None, "only products in blocks have outliers"
        self._blocks.observe(x, name, dim)

    def lookup(self, ids: Value, name: str, table: Array) -> Value:
        return self.op.Gather(self.float_weight(name, table), ids)

    def layer_norm(self, x: Value, name: str, dim: int, epsilon: float = 1e-5) -> Value:
        scale = self.float_weight(f"{name}.weight", self.weights.take(f"{name}.weight", dim))
        bias = self.float_weight(f"{name}.bias", self.weights.take(f"{name}.bias", dim))
        return self.op.LayerNormalization(x, scale, bias, axis=-1, epsilon=epsilon)

    def rms_norm(
        self, x: Value, name: str, dim: int, epsilon: float, heads: HeadLayout | None = None
    ) -> Value:
        """Normalise by the root of the mean square. heads: how heads lie in x, if it has any; their
        padding does not count.
        """
        weight = self.weights.take(f"{name}.weight", dim)
        if heads is not None:
            # The operator's mean is of the padded head: smaller by the share that is not padding.
            weight = heads.spread(weight) * np.float32(math.sqrt(heads.share))
            epsilon *= heads.share
        scale = self.float_weight(f"{name}.weight", weight)
        return self.op.SimplifiedLayerNormalization(
            x, scale, axis=-1, epsilon=epsilon, stash_type=1
        )

    def pad(self, x: Value, *pads: int, axes: Sequence[int]) -> Value:
        """Put zeros before x and after it; ``pads`` as in ONNX. CUDA cannot do it in bfloat16."""
        graph, dtype = self.graph, self.target.common_dtype
        zero = graph.constant(0, dtype)
        padded = self.op.Pad(x.cast(dtype), graph.ints(*pads), zero, graph.ints(*axes))
        return padded.cast(self.dtype)

    def softplus(self, x: Value) -> Value:
        """Return log(1 + e^x). On a CPU the operator's bits depend on a number's distance from the
        end of its tensor. So it is written out there, with log(1 + t) = 2 atanh(t / (2 + t)).
        """
        if self.target.is_cuda:
            return self.op.Softplus(x)
        t = (x.abs() * -1).exp()
        return x.relu() + self.op.Atanh(t / (t + 2)) * 2

    def dot(self, x: Value, y: Value, dim: int) -> Value:
        """Return the dot products f32 [...] of vectors [..., dim].

        ONNX Runtime adds up by fours from an aligned address on. Zeros fill the products up, so
        that each row begins at such an address.
        """
        products = x * y
        if missing := -dim % ALIGNED:
            products = self.pad(products, 0, missing, axes=[-1])
        return products.sum(-1).cast("float32")

    def last_position(self, x: Value, past_lengths: Value, total_lengths: Value) -> Value:
        """Return each row's last real position: x [batch, tokens, dim] -> [batch, dim]."""
        last = (total_lengths - past_lengths - 1).cast("int64")
        return self.op.GatherND(x, last.unsqueeze(1), batch_dims=1)

    def choose(
        self,
        logits: Value,
        vocab_size: int,
        width: int | str | None = None,
        token_ids: Callable[[Value], Value] | None = None,
    ) -> None:
        """Write the step graph's outputs: log-probabilities [batch, vocab] and the best of them.

        width: the axis of ``logits`` if it is not the vocabulary. ``token_ids`` then returns the
        tokens of its columns; without that, columns beyond the vocabulary are -inf.
        """
        columns = Columns(vocab_size, width or vocab_size, token_ids)
        write = choose_on_device if self.target.is_cuda else choose
        write(self.graph, logits.cast("float32"), columns)


MULTIPLE = 8  # of heads


PAIRS = 8  # that are rotated together; heads that rotate are multiples of twice as many


def head_layout(size: int, pairs: int = 0, spare: int = 0) -> HeadLayout:
    """Return the layout of heads whose number i is rotated with number i + ``pairs``, for all i
    below. The other numbers keep their order, some of them in between. ``spare``: the least number
    of zeros after heads that do not rotate.
    """
    if not pairs:
        return HeadLayout(tuple(range(size)), _up(size + spare, MULTIPLE))
    apart = _up(pairs, PAIRS)
    first, second = range(pairs), range(apart, apart + pairs)
    free = chain(range(pairs, apart), range(apart + pairs, 2 * apart), count(2 * apart))
    places = *first, *second, *islice(free, size - 2 * pairs)
    return HeadLayout(places, _up(max(places) + 1, 2 * PAIRS))


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def feed_forward(
    layers: Layers,
    x: Value,
    name: str,
    dims: tuple[int, int],
    activation: str,
    *,
    is_gated: bool,
    bias: bool,
    limits: GateLimits | None = None,
) -> Value:
    """Return the feed-forward network's output for x [..., d_model], without the residual sum.
    dims: d_model and ffn_dim.
    """
    d_model, ffn_dim = dims
    names = [f"{name}.gate", f"{name}.up"] if is_gated else [f"{name}.up"]
    sizes = [ffn_dim] * len(names)
    parts = layers.graph.split(layers.linear(x, names, d_model, sizes, bias=bias), sizes)
    if limits is not None:
        (gate, up), (least, most) = parts, limits.up
        parts = [gate.minimum(limits.gate), up.maximum(least).minimum(most)]
    inner = apply_gate(ACTIVATIONS[activation], *parts)
    return layers.linear(inner, [f"{name}.down"], ffn_dim, [d_model], bias=bias)


ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "relu": lambda x: x.relu(),
    "relu2": lambda x: x.relu() * x.relu(),
    "gelu": lambda x: x.graph.op.Gelu(x),
    "gelu_tanh": lambda x: x.graph.op.Gelu(x, approximate="tanh"),  # GPT-2's
    "swish": lambda x: x * x.sigmoid(),
}
