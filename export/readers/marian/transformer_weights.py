"""Weights of Marian's Transformers under our names (src/models/transformer.h)."""

from functools import partial

import numpy as np

from export.readers.common.shapes import STACKS, Shapes, sinusoids, transformer_shapes
from export.readers.common.weights import Change, Computed, Names, Table, TensorReference, scale_by
from export.readers.marian.model_files import OPTIONS
from export.readers.marian.options import has_trained_positions
from export.readers.marian.weights import ALPHA, MarianWeights
from models.configs.transformer import BaseTransformerConfig
from models.safetensors import Array, Quantised

GELU = 1.702  # x sigmoid(1.702 x), the approximation of Hendrycks and Gimpel 2016
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

    def _quantisation(self, ours: str, multiplier: float, input_range: float | None) -> Quantised:
        if self._is_gelu and ours.endswith("feed_forward.up.weight"):
            return Quantised(GELU / multiplier, input_range)
        quantised = super()._quantisation(ours, multiplier, input_range)
        if self._is_gelu and ours.endswith("feed_forward.down.weight"):
            return quantised.of_input_times(GELU)
        return quantised


def _linear(name: str) -> TensorReference:
    return TensorReference(name, words=("W", "b"), is_transposed=True)


def _layer_norm(sublayer: str, suffix: str = "") -> TensorReference:
    return TensorReference(f"{sublayer}_ln_{{}}{suffix}", words=("scale", "bias"))


def _first_rows(table: Array, count: int) -> Array:
    """Positions beyond the table are as its last."""
    return table[np.minimum(np.arange(count), len(table) - 1)]
