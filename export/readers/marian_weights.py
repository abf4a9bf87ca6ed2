"""Marian's weights under our names (src/models/transformer.h): all models, and Transformers.

Marian multiplies by [in, out], we by [out, in]; its vectors are rows [1, n]; its layers count from
1. Its decoder begins with a vector of zeros in place of a token: here that is a token of its own,
the last of the target's vocabulary, which is never produced.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np

from export.readers.common.options import Options
from export.readers.common.shapes import (
    STACKS,
    Shapes,
    sinusoids,
    transformer_shapes,
)
from export.readers.common.weights import (
    Change,
    Computed,
    Names,
    Table,
    TensorReference,
    Tensors,
    read_weights,
    scale_by,
    tensor_names,
)
from export.readers.marian_files import OPTIONS, Item
from export.readers.marian_options import has_trained_positions
from models.configs.recurrent import RecurrentConfig
from models.configs.transformer import BaseTransformerConfig
from models.safetensors import Array, Quantised

LEVELS = 127  # of int8: Marian clips what it multiplies to -127..127
NEVER = -300.0  # added to the score of the token that stands for the zero vector: e^-300 is 0
ALPHA = "_QuantMultA"  # levels to a unit of what is multiplied by a weight
OUTPUT_ALPHA = f"none{ALPHA}"  # of the output layer, where its weight is an embedding

C = TypeVar("C", bound=BaseTransformerConfig | RecurrentConfig)


class MarianWeights(ABC, Generic[C]):
    """Readers of a model's weights by our names, and the quantisation of those in int8.

    output: the name of the layer that scores the vocabulary.
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
        for ours, theirs in tensor_names(shapes, table, tensors).items():
            if not ours.endswith("positions.weight"):
                self._note_levels(ours, theirs)

    @property
    @abstractmethod
    def _embedding_dim(self) -> int: ...

    @abstractmethod
    def _shapes(self) -> Shapes:
        """Return all weights of ours."""

    @abstractmethod
    def _table(self) -> Table: ...

    def _vocabulary(self) -> Names:
        size, dim = self._config.vocab_size - 1, self._embedding_dim
        source, target = embedding_names(self._options)
        table = TensorReference(target, shape=(size, dim), change=_with_zero_row)
        output = TensorReference(
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

    def _output_bias(self, size: int) -> TensorReference | Computed:
        if self._options.flag("output-omit-bias", False):
            return Computed(lambda _: self._without_specials(np.zeros(size, np.float32)))
        name = f"{self.output}_b"
        return TensorReference(name, shape=(1, size), change=self._without_specials)

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
        """Return how our weight is quantised, which may be more than theirs."""
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
    """Return the file's names of the source and target embeddings."""
    if options.flag("tied-embeddings-all", False) or options.flag("tied-embeddings-src", False):
        return "Wemb", "Wemb"
    return "encoder_Wemb", "decoder_Wemb"


def _with_zero_row(table: Array) -> Array:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])


GELU = 1.702
ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}
LETTERS = {"query": "q", "key": "k", "value": "v", "output": "o"}


class TransformerWeights(MarianWeights[BaseTransformerConfig]):
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
            changes[f"{stack}.layers.*.feed_forward.up"] = scale_by(GELU)
            changes[f"{stack}.layers.*.feed_forward.down.weight"] = scale_by(1 / GELU)
        names = {**self._vocabulary(), **self._stack("encoder"), **self._stack("decoder")}
        ignored = (f".*{ALPHA}", OPTIONS)
        return Table(names, changes, ignored, first_layer=1, vectors_are_rows=True)

    def _stack(self, stack: str) -> Names:
        ours, theirs = f"{stack}.layers.*", f"{stack}_l*"
        names: dict[str, TensorReference | Computed] = {
            f"{stack}.positions.weight": self._positions(stack)
        }
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

    def _norm(self, sublayer: str, after: str = "") -> TensorReference:
        """Before a sublayer the norm is named after it alone, after it as well after `after`."""
        is_before = self._config.norm.place == "pre"
        return _layer_norm(sublayer, "_pre") if is_before else _layer_norm(f"{sublayer}{after}")

    def _positions(self, stack: str) -> TensorReference | Computed:
        config = self._config
        count = config.max_source_tokens if stack == "encoder" else config.max_target_tokens
        if not has_trained_positions(self._options):
            return Computed(partial(sinusoids, precision=np.float64))
        num_rows = self._items["Wpos"].shape[0] if "Wpos" in self._items else 1
        change = partial(_first_rows, count=count)
        return TensorReference("Wpos", shape=(num_rows, config.d_model), change=change)

    def _levels(self, ours: str, multiplier: float, input_range: float | None) -> Quantised:
        if self._is_gelu and ours.endswith("feed_forward.up.weight"):
            return Quantised(GELU / multiplier, input_range)
        found = super()._levels(ours, multiplier, input_range)
        if self._is_gelu and ours.endswith("feed_forward.down.weight"):
            return found.of_input_times(GELU)
        return found


def _linear(name: str) -> TensorReference:
    return TensorReference(name, words=("W", "b"), is_transposed=True)


def _layer_norm(sublayer: str, suffix: str = "") -> TensorReference:
    return TensorReference(f"{sublayer}_ln_{{}}{suffix}", words=("scale", "bias"))


def _first_rows(table: Array, count: int) -> Array:
    """Positions beyond the table are as its last."""
    return table[np.minimum(np.arange(count), len(table) - 1)]
