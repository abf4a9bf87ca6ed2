"""Reads fairseq's LSTMs as our `luong`: models/lstm.py of it.

score(h_t, h_s) = (W h_t) . h_s, readout tanh(W_out [c; h_t]). A layer between the readout and the
output, where there is one, comes into the output.
"""

from typing import Any

import numpy as np

from export.readers.common.luong_shapes import encoder_names, luong_shapes
from export.readers.common.tables import Entry, Held, Joined, Made, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import Shape, WeightReader
from export.readers.fairseq.embeddings import SOURCE, TARGET
from export.readers.fairseq.reader import FairseqReader
from models.arrays import Array
from models.configs.translators.luong import LuongConfig

OUTPUT, INNER = "decoder.fc_out", "decoder.additional_fc"
PROJECTED = "decoder.encoder_hidden_proj.weight"
PROJECTIONS = {"bridge.parts.0": "hidden", "bridge.parts.1": "cell"}
CELLS: dict[Any, str | Entry] = {
    "decoder.layers.*.input": "decoder.layers.*.{}_ih",
    "decoder.layers.*.hidden": "decoder.layers.*.{}_hh",
    # the first reads a word and the last readout side by side
    ("decoder.layers.0.input.weight", "decoder.layers.0.context.weight"): Held(
        "decoder.layers.0.weight_ih", axis=1
    ),
}


class FairseqRecurrent(FairseqReader):
    """Reads configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel) -> None:
        super().__init__(model)
        self.has_inner = f"{INNER}.weight" in self.tensors
        self.shares_all = model.options.flag("share_all_embeddings", False)
        shares_output = model.options.flag("share_decoder_input_output_embed", False)
        self.shares_output = self.shares_all or shares_output

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        [encoder, decoder] = self.model.dims(
            "encoder.lstm.weight_hh_l0", "decoder.layers.0.weight_hh"
        )
        is_both = "encoder.lstm.weight_hh_l0_reverse" in self.tensors
        is_tied = self.shares_all and not self.has_inner
        return {
            "architecture": "luong",
            "cell": "lstm",
            "vocab_size": self.target_words,
            "source_vocab_size": None if is_tied else self.source_words,
            "tied_embeddings": is_tied,
            "embedding_dim": self.dim,
            "embedding_scale": 1.0,
            "hidden_dim": decoder[1],
            "readout_dim": decoder[1],
            "num_layers": self.model.count("decoder.layers.{}.weight_hh"),
            "score": "general",
            "imported": {
                "bidirectional": is_both,
                "memory_dim": encoder[1] * (2 if is_both else 1),
                "bridge": "linear" if PROJECTED in self.tensors else "none",
            },
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        self.options.only("decoder_attention", True, "1", "True")
        if "decoder.adaptive_softmax.head.weight" in self.tensors:
            self.options.refuse("adaptive_softmax_cutoff")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Find them by our names."""
        names: dict[Any, str | Entry] = {
            "embedding.weight": TARGET,
            "source_embedding.weight": SOURCE,
            "target_embedding.weight": TARGET,
            **encoder_names(config, "encoder.lstm"),
            **CELLS,
            **{ours: f"decoder.encoder_{part}_proj" for ours, part in PROJECTIONS.items()},
            "attention.score.key": Held("decoder.attention.input_proj", is_transposed=True),
            "readout": "decoder.attention.output_proj",
            "output_bias": self._output_bias(config),
        }
        if not config.tied_embeddings:
            names["output.weight"] = self._output(config)
        needless = (r"encoder\.embed_tokens\.weight",) if self.shares_all else ()
        return read_weights(luong_shapes(config), Table(names, {}, needless), self.tensors)

    def _output(self, config: LuongConfig) -> str | Entry:
        name = TARGET if self.shares_output else f"{OUTPUT}.weight"
        if not self.has_inner:
            return name
        [(inner, _)] = self.model.dims(f"{INNER}.weight")
        parts = {name: (config.vocab_size, inner), f"{INNER}.weight": (inner, config.hidden_dim)}
        return Joined(parts, product)

    def _output_bias(self, config: LuongConfig) -> str | Entry:
        """Make zeros where there is none, and of the inner layer's bias its part."""
        bias: dict[str, Shape] = {}
        if not self.shares_output:
            bias = {f"{OUTPUT}.bias": (config.vocab_size,)}
        if not self.has_inner:
            return next(iter(bias), Made(_zeros))
        [(inner, _)] = self.model.dims(f"{INNER}.weight")
        name = TARGET if self.shares_output else f"{OUTPUT}.weight"
        parts = {name: (config.vocab_size, inner), f"{INNER}.bias": (inner,)}
        return Joined(parts | bias, _biased)


def product(outer: Array, inner: Array) -> Array:
    """Multiply matrices, or a matrix and a vector, in double precision."""
    return (outer.astype(np.float64) @ inner).astype(np.float32)


def _biased(outer: Array, inner: Array, *bias: Array) -> Array:
    return product(outer, inner) + (bias[0] if bias else np.float32(0))


def _zeros(shape: Shape) -> Array:
    return np.zeros(shape, np.float32)
