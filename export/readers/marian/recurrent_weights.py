"""Weights of Marian's and Nematus' recurrent networks under our names (src/models/s2s.h,
src/rnn/cells.h).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from export.readers.common.shapes import Shapes, linear_shapes, norm_shapes, vocabulary_shapes
from export.readers.common.weights import ZEROS, Merged, Shape, Table, TensorReference, WeightSource
from export.readers.marian.model_files import OPTIONS
from export.readers.marian.weights import ALPHA, MarianWeights
from models.architectures.nematus.config import NematusConfig
from models.layers.equations import CELLS
from models.safetensors import Array

LSTM_ORDER = (1, 0, 2, 3)  # of theirs: forget, input, new, output
Entries = dict[Any, str | WeightSource]
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
        for cell in list_cells(self._config):
            names |= _CellNames(self._config, *cell).names()
        return Table(names, {}, (f".*{ALPHA}", OPTIONS), vectors_are_rows=True)

    def _outer(self) -> Entries:
        """Return the names of weights outside cells: the initial state, attention and the
        readout.
        """
        layers = [self._dense("initial", "decoder_ff_state_{}", "")]
        for number, name in enumerate(READOUTS):
            layers.append(self._dense(f"readout.{name}", "decoder_ff_logit_l1_{}", str(number)))
        names: Entries = {"score.weight": _transposed("decoder_U_att")}
        names |= {"key.linear.weight": _transposed("decoder_Wc_att")}
        names |= {
            "query.linear.weight": _transposed("decoder_W_comb_att"),
            "query.linear.bias": ZEROS,
        }
        for layer in layers:
            names |= layer
        return names | self._attention_norms()

    def _dense(self, ours: str, theirs: str, number: str) -> Entries:
        bias = f"{theirs.format('b')}{number}"
        names: Entries = {
            f"{ours}.linear.weight": _transposed(f"{theirs.format('W')}{number}"),
            f"{ours}.linear.bias": ZEROS if self._config.layer_norm == "cell" else bias,
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
                "key.linear.bias": ZEROS,
                "key.norms.0.weight": "decoder_att_gamma1",
                "key.norms.0.bias": "decoder_b_att",
                "query.norms.0.weight": "decoder_att_gamma2",
                "query.norms.0.bias": ZEROS,
            }
        return {
            "key.linear.bias": "decoder_b_att",
            "key.norms.0.weight": "decoder_Wc_att_lns",
            "key.norms.0.bias": "decoder_Wc_att_lnb",
            "query.norms.0.weight": "decoder_W_comb_att_lns",
            "query.norms.0.bias": "decoder_W_comb_att_lnb",
        }


class _CellNames:
    """The names of the weights of one cell. input_dim: 0 for a cell without an input."""

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
        return names | {f"{self._ours}.bias": ZEROS if self._is_final else self._bias()}

    def _part(self, part: str, letter: str, in_dim: int) -> Entries:
        """Return the names of the weights of the input or of the state, with their norms."""
        ours, has_bias = f"{self._ours}.{part}", (part == "hidden") == self._is_final
        bias = self._bias() if has_bias else ZEROS
        names: Entries = {f"{ours}.linear.weight": self._weight(letter, in_dim)}
        if self._config.layer_norm == "cell":
            gamma = f"{self._theirs}_gamma{1 if part == 'input' else 2}"
            scale = self._blocks(gamma, 1)
            return names | {
                f"{ours}.linear.bias": ZEROS,
                f"{ours}.norms.0.weight": scale,
                f"{ours}.norms.0.bias": bias,
            }
        for number, end in enumerate(("", "x")):
            norm = f"{self._theirs}_{letter}{end}"
            names[f"{ours}.norms.{number}.weight"] = f"{norm}_lns"
            names[f"{ours}.norms.{number}.bias"] = f"{norm}_lnb"
        return names | {f"{ours}.linear.bias": bias}

    def _weight(self, letter: str, in_dim: int) -> Merged:
        return self._blocks(f"{self._theirs}_{letter}", in_dim)

    def _bias(self) -> Merged:
        return self._blocks(f"{self._theirs}_b", 1)

    def _blocks(self, name: str, rows: int) -> Merged:
        """Turn [rows, gates * hidden] to [gates * hidden, rows], or a row to a vector."""
        num = CELLS[self._config.cell].num_gates
        is_split = self._config.cell == "gru" and "gamma" not in name
        parts: dict[str, Shape] = {name: (rows, num * self._dim)}
        if is_split:
            parts = {name: (rows, 2 * self._dim), f"{name}x": (rows, self._dim)}
        is_vector = name.startswith(f"{self._theirs}_b") or "gamma" in name

        def join(*arrays: Array) -> Array:
            stacked = np.concatenate(arrays, 1)
            if self._config.cell == "lstm":
                blocks = np.split(stacked, num, 1)
                stacked = np.concatenate([blocks[i] for i in LSTM_ORDER], 1)
            return stacked[0] if is_vector else stacked.T

        return Merged(parts, join)


Cell = tuple[str, str, int, bool]  # our name, theirs, size of its input, whether it is "final"


def list_cells(config: NematusConfig) -> Iterator[Cell]:
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
    """Return the shapes of all weights."""
    dim, memory, kind = config.hidden_dim, config.memory_dim, CELLS[config.cell]
    sizes = config.gate_sizes(kind.num_gates)
    shapes = vocabulary_shapes(config, config.embedding_dim, config.readout_dim)
    shapes |= {"output_bias": (config.vocab_size,), "score.weight": (1, memory)}
    shapes |= _normalised_shapes(config, "initial", memory, [dim]) | _normalised_shapes(
        config, "key", memory, [memory]
    )
    shapes |= _normalised_shapes(config, "query", dim, [memory])
    for name, into in zip(READOUTS, (config.embedding_dim, dim, memory), strict=True):
        shapes |= _normalised_shapes(config, f"readout.{name}", into, [config.readout_dim])
    for name, _, into, _ in list_cells(config):
        shapes |= _normalised_shapes(config, f"{name}.hidden", dim, sizes)
        has_bias: Shapes = {f"{name}.bias": (sum(sizes),)}
        shapes |= _normalised_shapes(config, f"{name}.input", into, sizes) if into else has_bias
    return shapes


def _normalised_shapes(config: NematusConfig, name: str, in_dim: int, sizes: list[int]) -> Shapes:
    shapes = linear_shapes({f"{name}.linear": (sum(sizes), in_dim)}, bias=True)
    if config.epsilon is not None:
        for number, size in enumerate(sizes):
            shapes |= norm_shapes([f"{name}.norms.{number}"], size, bias=True)
    return shapes


def _transposed(name: str) -> TensorReference:
    return TensorReference(name, is_transposed=True)
