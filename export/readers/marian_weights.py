"""Marian's weights under our names (src/models/transformer.h, s2s.h; src/rnn/cells.h).

Marian multiplies by [in, out], we by [out, in]; its vectors are rows [1, n]; its layers count from
1. Its decoder begins with a vector of zeros in place of a token: here that is a token of its own,
the last of the target's vocabulary, which is never produced.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from export.readers.common.options import Options
from export.readers.common.shapes import (
    STACKS,
    Shapes,
    linears,
    norms,
    sinusoids,
    transformer_shapes,
    vocabulary,
)
from export.readers.common.tables import (
    Change,
    Entry,
    Held,
    Joined,
    Made,
    Names,
    Table,
    held_names,
    read_weights,
    times,
)
from export.readers.common.weights import Shape, Tensors
from export.readers.marian_files import OPTIONS, Item
from export.readers.marian_options import has_trained_positions
from models.arrays import Array
from models.configs.recurrent import RecurrentConfig
from models.configs.translators.nematus import NematusConfig
from models.configs.translators.transformer import TransformerSizes
from models.layers.equations import CELLS
from models.storage.quantised import Quantised

LEVELS = 127  # of int8: Marian clips what it multiplies to -127..127
NEVER = -300.0  # added to the score of the token that stands for the zero vector: e^-300 is 0
ALPHA = "_QuantMultA"  # levels to a unit of what is multiplied by a weight
OUTPUT_ALPHA = f"none{ALPHA}"  # of the output layer, where its weight is an embedding

C = TypeVar("C", bound=TransformerSizes | RecurrentConfig)


class MarianWeights(ABC, Generic[C]):
    """Holds readers of a model's weights by our names, and how those in int8 are quantised.

    output: what the layer that scores the vocabulary is called.
    """

    output: ClassVar[str]

    def __init__(
        self,
        items: Mapping[str, Item],
        config: C,
        options: Options,
        unk: int | None,
    ) -> None:
        """unk: is never produced, as in Marian; None where there is no such token."""
        self._items, self._config, self._options, self._unk = items, config, options, unk
        tensors = Tensors({name: item.stored for name, item in items.items()}, options.problems)
        shapes, table = self._shapes(), self._table()
        self.readers = read_weights(shapes, table, tensors)
        tensors.finish()
        self.quantised: dict[str, Quantised] = {}
        for ours, theirs in held_names(shapes, table, tensors).items():
            if not ours.endswith("positions.weight"):
                self._note_levels(ours, theirs)

    @property
    @abstractmethod
    def _embedding_dim(self) -> int: ...

    @abstractmethod
    def _shapes(self) -> Shapes:
        """Give all weights of ours."""

    @abstractmethod
    def _table(self) -> Table: ...

    def _vocabulary(self) -> Names:
        size, dim = self._config.vocab_size - 1, self._embedding_dim
        source, target = embedding_names(self._options)
        table = Held(target, shape=(size, dim), change=_with_zero_row)
        output = Held(
            f"{self.output}_W", is_transposed=True, shape=(dim, size), change=_with_zero_row
        )
        names = ("tied-embeddings", "tied-embeddings-all")
        is_tied = any(self._options.flag(name, False) for name in names)
        return {
            "embedding.weight": table,
            "source_embedding.weight": source,
            "target_embedding.weight": table,
            "output.weight": table if is_tied else output,
            "output_bias": self._output_bias(size),
        }

    def _output_bias(self, size: int) -> Held | Made:
        if self._options.flag("output-omit-bias", False):
            return Made(lambda _: self._without_specials(np.zeros(size, np.float32)))
        name = f"{self.output}_b"
        return Held(name, shape=(1, size), change=self._without_specials)

    def _without_specials(self, bias: Array) -> Array:
        bias = np.append(bias, np.float32(NEVER))
        if self._unk is not None and self._unk < len(bias):
            bias[self._unk] = NEVER
        return bias

    def _note_levels(self, ours: str, theirs: str) -> None:
        item = self._items.get(theirs)
        if item is None or item.multiplier is None:
            return
        if not (math.isfinite(item.multiplier) and item.multiplier > 0):
            self._options.problems.append(f"{theirs} has the multiplier {item.multiplier}")
            return
        is_vocabulary = theirs in embedding_names(self._options)
        input_range = self._input_range(OUTPUT_ALPHA if is_vocabulary else f"{theirs}{ALPHA}")
        self.quantised[ours] = self._levels(ours, item.multiplier, input_range)

    def _levels(self, ours: str, multiplier: float, input_range: float | None) -> Quantised:
        """Say how our weight is quantised, which may be more than theirs."""
        return Quantised(1.0 / multiplier, input_range)

    def _input_range(self, alpha: str) -> float | None:
        item = self._items.get(alpha)
        if item is None or item.kind != "F32" or item.multiplier is not None:
            return None
        levels = float(item.read().flat[0])
        if not (math.isfinite(levels) and levels > 0):
            self._options.problems.append(f"{alpha} is {levels}, which is no multiplier")
            return None
        return LEVELS / levels


def embedding_names(options: Options) -> tuple[str, str]:
    """Give theirs, of source and target."""
    if options.flag("tied-embeddings-all", False) or options.flag("tied-embeddings-src", False):
        return "Wemb", "Wemb"
    return "encoder_Wemb", "decoder_Wemb"


def _with_zero_row(table: Array) -> Array:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])


GELU = 1.702
ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}
LETTERS = {"query": "q", "key": "k", "value": "v", "output": "o"}


class TransformerWeights(MarianWeights[TransformerSizes]):
    """The weights of a Transformer.

    Marian's `gelu` is x sigmoid(1.702 x): swish of 1.702 times x, divided by 1.702, which goes into
    the weights before and after it.
    """

    output = "decoder_ff_logit_out"

    @property
    def _embedding_dim(self) -> int:
        return self._config.d_model

    @property
    def _is_gelu(self) -> bool:
        return self._options.values.get("transformer-ffn-activation") == "gelu"

    def _shapes(self) -> Shapes:
        return transformer_shapes(self._config)

    def _table(self) -> Table:
        changes: dict[str, Change] = {}
        for stack in STACKS if self._is_gelu else ():
            changes[f"{stack}.layers.*.feed_forward.up"] = times(GELU)
            changes[f"{stack}.layers.*.feed_forward.down.weight"] = times(1 / GELU)
        names = {**self._vocabulary(), **self._stack("encoder"), **self._stack("decoder")}
        needless = (f".*{ALPHA}", OPTIONS)
        return Table(names, changes, needless, first_layer=1, vectors_are_rows=True)

    def _stack(self, stack: str) -> Names:
        ours, theirs = f"{stack}.layers.*", f"{stack}_l*"
        names: dict[str, Held | Made] = {f"{stack}.positions.weight": self._positions(stack)}
        for name, their_name in ATTENTIONS.items():
            for part, letter in LETTERS.items():
                names[f"{ours}.{name}.{part}"] = _linear(f"{theirs}_{their_name}_{{}}{letter}")
            names[f"{ours}.{name}_norm"] = self._norm(f"{theirs}_{their_name}_Wo")
        return names | {
            f"{stack}.embedding_norm": _layer_norm(f"{stack}_emb", "_pre"),
            f"{stack}.norm": _layer_norm(f"{stack}_top"),
            f"{ours}.recurrence.forget": _linear(f"{theirs}_rnn_{{}}f"),
            f"{ours}.recurrence.input": _linear(f"{theirs}_rnn_{{}}"),
            f"{ours}.recurrence_norm": self._norm(f"{theirs}_rnn", after="_ffn"),
            f"{ours}.feed_forward.up": _linear(f"{theirs}_ffn_{{}}1"),
            f"{ours}.feed_forward.down": _linear(f"{theirs}_ffn_{{}}2"),
            f"{ours}.feed_forward_norm": self._norm(f"{theirs}_ffn_ffn"),
        }

    def _norm(self, sublayer: str, after: str = "") -> Held:
        """Before a sublayer the norm is named after it alone, after it as well after `after`."""
        is_before = self._config.norm.place == "pre"
        return _layer_norm(sublayer, "_pre") if is_before else _layer_norm(f"{sublayer}{after}")

    def _positions(self, stack: str) -> Held | Made:
        config = self._config
        count = config.max_source_tokens if stack == "encoder" else config.max_target_tokens
        if not has_trained_positions(self._options):
            return Made(partial(sinusoids, precision=np.float64))
        num_rows = self._items["Wpos"].shape[0] if "Wpos" in self._items else 1
        change = partial(_first_rows, count=count)
        return Held("Wpos", shape=(num_rows, config.d_model), change=change)

    def _levels(self, ours: str, multiplier: float, input_range: float | None) -> Quantised:
        if self._is_gelu and ours.endswith("feed_forward.up.weight"):
            return Quantised(GELU / multiplier, input_range)
        found = super()._levels(ours, multiplier, input_range)
        if self._is_gelu and ours.endswith("feed_forward.down.weight"):
            return found.of_input_times(GELU)
        return found


def _linear(name: str) -> Held:
    return Held(name, words=("W", "b"), is_transposed=True)


def _layer_norm(sublayer: str, suffix: str = "") -> Held:
    return Held(f"{sublayer}_ln_{{}}{suffix}", words=("scale", "bias"))


def _first_rows(table: Array, count: int) -> Array:
    """Positions beyond the table are as its last."""
    return table[np.minimum(np.arange(count), len(table) - 1)]


LSTM_ORDER = (1, 0, 2, 3)  # of theirs: forget, input, new, output
Entries = dict[Any, str | Entry]
READOUTS = ("word", "state", "context")


class RecurrentWeights(MarianWeights[NematusConfig]):
    """The weights of a recurrent network.

    A cell's biases belong to its input, or to its state where it is "final", as cells after the
    attention are: in the new value of a GRU the reset gate then multiplies them too. Where layers
    are normalised, Marian's biases are those of the norm, Nematus' those of the product before it.
    """

    output = "decoder_ff_logit_l2"

    @property
    def _embedding_dim(self) -> int:
        return self._config.embedding_dim

    def _shapes(self) -> Shapes:
        return nematus_shapes(self._config)

    def _table(self) -> Table:
        names = {**self._vocabulary(), **self._outer()}
        for cell in cells_of(self._config):
            names |= _CellNames(self._config, *cell).names()
        return Table(names, {}, (f".*{ALPHA}", OPTIONS), vectors_are_rows=True)

    def _outer(self) -> Entries:
        """Name what is no cell: the beginning, attention and the readout."""
        layers = [self._dense("initial", "decoder_ff_state_{}", "")]
        for number, name in enumerate(READOUTS):
            layers.append(self._dense(f"readout.{name}", "decoder_ff_logit_l1_{}", str(number)))
        names: Entries = {"score.weight": _turned("decoder_U_att")}
        names |= {"key.linear.weight": _turned("decoder_Wc_att")}
        names |= {"query.linear.weight": _turned("decoder_W_comb_att"), "query.linear.bias": _ZEROS}
        for layer in layers:
            names |= layer
        return names | self._attention_norms()

    def _dense(self, ours: str, theirs: str, number: str) -> Entries:
        bias = f"{theirs.format('b')}{number}"
        names: Entries = {
            f"{ours}.linear.weight": _turned(f"{theirs.format('W')}{number}"),
            f"{ours}.linear.bias": _ZEROS if self._config.layer_norm == "cell" else bias,
        }
        if self._config.layer_norm == "cell":
            scale = f"{theirs.format('gamma')}{number}"
            return names | {f"{ours}.norms.0.weight": scale, f"{ours}.norms.0.bias": bias}
        return names | {
            f"{ours}.norms.0.weight": f"{theirs.format('ln_s')}{number}",
            f"{ours}.norms.0.bias": f"{theirs.format('ln_b')}{number}",
        }

    def _attention_norms(self) -> Entries:
        if self._config.layer_norm == "cell":
            return {
                "key.linear.bias": _ZEROS,
                "key.norms.0.weight": "decoder_att_gamma1",
                "key.norms.0.bias": "decoder_b_att",
                "query.norms.0.weight": "decoder_att_gamma2",
                "query.norms.0.bias": _ZEROS,
            }
        return {
            "key.linear.bias": "decoder_b_att",
            "key.norms.0.weight": "decoder_Wc_att_lns",
            "key.norms.0.bias": "decoder_Wc_att_lnb",
            "query.norms.0.weight": "decoder_W_comb_att_lns",
            "query.norms.0.bias": "decoder_W_comb_att_lnb",
        }


class _CellNames:
    """Names the weights of one cell, which has an input of `input_dim` numbers if of any."""

    def __init__(
        self, config: NematusConfig, ours: str, theirs: str, input_dim: int, is_final: bool
    ) -> None:
        self._config, self._ours, self._theirs = config, ours, theirs
        self._input_dim, self._is_final = input_dim, is_final
        self._dim = config.hidden_dim

    def names(self) -> Entries:
        names = self._part("hidden", "U", self._dim)
        if self._input_dim:
            return names | self._part("input", "W", self._input_dim)
        return names | {f"{self._ours}.bias": _ZEROS if self._is_final else self._bias()}

    def _part(self, part: str, letter: str, in_dim: int) -> Entries:
        """Name the input's weights or the state's, and their norms."""
        ours, has_bias = f"{self._ours}.{part}", (part == "hidden") == self._is_final
        bias = self._bias() if has_bias else _ZEROS
        names: Entries = {f"{ours}.linear.weight": self._weight(letter, in_dim)}
        if self._config.layer_norm == "cell":
            gamma = f"{self._theirs}_gamma{1 if part == 'input' else 2}"
            scale = self._blocks(gamma, 1)
            return names | {
                f"{ours}.linear.bias": _ZEROS,
                f"{ours}.norms.0.weight": scale,
                f"{ours}.norms.0.bias": bias,
            }
        for number, end in enumerate(("", "x")):
            norm = f"{self._theirs}_{letter}{end}"
            names[f"{ours}.norms.{number}.weight"] = f"{norm}_lns"
            names[f"{ours}.norms.{number}.bias"] = f"{norm}_lnb"
        return names | {f"{ours}.linear.bias": bias}

    def _weight(self, letter: str, in_dim: int) -> Joined:
        return self._blocks(f"{self._theirs}_{letter}", in_dim)

    def _bias(self) -> Joined:
        return self._blocks(f"{self._theirs}_b", 1)

    def _blocks(self, name: str, rows: int) -> Joined:
        """Turn [rows, gates * hidden] to [gates * hidden, rows], or a row to a vector."""
        num = CELLS[self._config.cell].num_gates
        is_split = self._config.cell == "gru" and "gamma" not in name
        parts: dict[str, Shape] = {name: (rows, num * self._dim)}
        if is_split:
            parts = {name: (rows, 2 * self._dim), f"{name}x": (rows, self._dim)}
        is_vector = name.startswith(f"{self._theirs}_b") or "gamma" in name

        def join(*arrays: Array) -> Array:
            joined = np.concatenate(arrays, 1)
            if self._config.cell == "lstm":
                blocks = np.split(joined, num, 1)
                joined = np.concatenate([blocks[i] for i in LSTM_ORDER], 1)
            return joined[0] if is_vector else joined.T

        return Joined(parts, join)


Cell = tuple[str, str, int, bool]  # our name, theirs, size of its input, whether it is "final"


def cells_of(config: NematusConfig) -> Iterator[Cell]:
    """List all cells of a network."""
    dim, has_above = config.hidden_dim, config.layers_above > 0
    for stack, theirs in (("forwards", "encoder_bi"), ("backwards", "encoder_bi_r")):
        for layer in range(config.layers_of_direction):
            prefix = f"{theirs}_l{layer + 1}" if layer else theirs
            names = (f"encoder.{stack}.{layer}", prefix)
            into = dim if layer else config.embedding_dim
            yield from _layer(*names, into, config.encoder_transitions, layer == 0)
    for layer in range(config.layers_above if has_above else 0):
        names = (f"encoder.above.{layer}", f"encoder_l{layer + 2}")
        yield from _layer(*names, dim if layer else 2 * dim, config.encoder_transitions)
    yield "decoder.word", "decoder_cell1", config.embedding_dim, False
    yield "decoder.context", "decoder_cell2", config.memory_dim, True
    for number in range(config.decoder_transitions - 2):
        yield f"decoder.transitions.{number}", f"decoder_cell{number + 3}", 0, True
    for layer in range(config.decoder_layers - 1):
        names = (f"decoder.above.{layer}", f"decoder_l{layer + 2}")
        yield from _layer(*names, dim, config.higher_transitions)


def _layer(
    ours: str, theirs: str, input_dim: int, num_cells: int, is_bare: bool = False
) -> Iterator[Cell]:
    """List a layer's cells; of a bare layer the first has no number."""
    for number in range(num_cells):
        end = "" if is_bare and number == 0 else f"_cell{number + 1}"
        yield f"{ours}.{number}", f"{theirs}{end}", 0 if number else input_dim, False


def nematus_shapes(config: NematusConfig) -> Shapes:
    """Give all weights of ours."""
    dim, memory, kind = config.hidden_dim, config.memory_dim, CELLS[config.cell]
    sizes = config.gate_sizes(kind.num_gates)
    found = vocabulary(config, config.embedding_dim, config.readout_dim)
    found |= {"output_bias": (config.vocab_size,), "score.weight": (1, memory)}
    found |= _normed(config, "initial", memory, [dim]) | _normed(config, "key", memory, [memory])
    found |= _normed(config, "query", dim, [memory])
    for name, into in zip(READOUTS, (config.embedding_dim, dim, memory), strict=True):
        found |= _normed(config, f"readout.{name}", into, [config.readout_dim])
    for name, _, into, _ in cells_of(config):
        found |= _normed(config, f"{name}.hidden", dim, sizes)
        has_bias: Shapes = {f"{name}.bias": (sum(sizes),)}
        found |= _normed(config, f"{name}.input", into, sizes) if into else has_bias
    return found


def _normed(config: NematusConfig, name: str, in_dim: int, sizes: list[int]) -> Shapes:
    found = linears({f"{name}.linear": (sum(sizes), in_dim)}, bias=True)
    if config.epsilon is not None:
        for number, size in enumerate(sizes):
            found |= norms([f"{name}.norms.{number}"], size, bias=True)
    return found


_ZEROS = Made(lambda shape: np.zeros(shape, np.float32))


def _turned(name: str) -> Held:
    return Held(name, is_transposed=True)
