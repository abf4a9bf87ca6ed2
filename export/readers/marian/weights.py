"""Marian's weights under our names: what its Transformers and recurrent networks share.

Marian multiplies by [in, out], we by [out, in]; its vectors are rows [1, n]; its layers count from
1. Its decoder begins with a vector of zeros in place of a token: here that is a token of its own,
the last of the target's vocabulary, which is never produced.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

import numpy as np

from export.readers.common.options import Options
from export.readers.common.shapes import Shapes
from export.readers.common.weights import (
    Computed,
    Names,
    StoredTensors,
    Table,
    TensorReference,
    read_weights,
    tensor_names,
)
from export.readers.marian.model_files import Item
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
        tensors = StoredTensors(
            {name: item.as_tensor() for name, item in items.items()}, options.problems
        )
        shapes, table = self._shapes(), self._table()
        self.readers = read_weights(shapes, table, tensors)
        tensors.refuse_unused()
        self.quantised: dict[str, Quantised] = {}
        for ours, theirs in tensor_names(shapes, table, tensors).items():
            if not ours.endswith("positions.weight"):
                self._read_quantisation(ours, theirs)

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
        table = TensorReference(target, shape=(size, dim), change=_append_zero_row)
        output = TensorReference(
            f"{self.output}_W", is_transposed=True, shape=(dim, size), change=_append_zero_row
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
            return Computed(lambda _: self._suppress_special_tokens(np.zeros(size, np.float32)))
        name = f"{self.output}_b"
        return TensorReference(name, shape=(1, size), change=self._suppress_special_tokens)

    def _suppress_special_tokens(self, bias: Array) -> Array:
        bias = np.append(bias, np.float32(NEVER))
        if self._unk is not None and self._unk < len(bias):
            bias[self._unk] = NEVER
        return bias

    def _read_quantisation(self, ours: str, theirs: str) -> None:
        item = self._items.get(theirs)
        if item is None or item.multiplier is None:
            return
        if not (math.isfinite(item.multiplier) and item.multiplier > 0):
            self._options.problems.append(f"{theirs} has the multiplier {item.multiplier}")
            return
        is_vocabulary = theirs in embedding_names(self._options)
        input_range = self._input_range(OUTPUT_ALPHA if is_vocabulary else f"{theirs}{ALPHA}")
        self.quantised[ours] = self._quantisation(ours, item.multiplier, input_range)

    def _quantisation(self, ours: str, multiplier: float, input_range: float | None) -> Quantised:
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


def _append_zero_row(table: Array) -> Array:
    return np.concatenate([table, np.zeros((1, table.shape[1]), np.float32)])
