"""Reads recurrent encoder-decoders of JoeyNMT as our `luong`: joeynmt/encoders.py, decoders.py and
attention.py.

    luong      score(h_t, h_s) = h_t . W h_s
    bahdanau   v . tanh(W h_t + U h_s)          readout tanh(W_out [h_t; c] + b), in both
"""

from functools import partial
from typing import Any

import numpy as np

from export.readers.common.luong_shapes import encoder_names, luong_shapes
from export.readers.common.tables import Entry, Held, Made, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import Shape, WeightReader
from export.readers.joeynmt.embeddings import NAMES, Embeddings
from models.arrays import Array

SCORES = {"luong": "general", "bahdanau": "concat"}
BRIDGES = {"bridge": "tanh", "last": "top", "zero": "zeros", "zeros": "zeros"}
CELL_TYPES = ("gru", "lstm")


class JoeyNMTRecurrent:
    """Reads configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings, self.tensors = model, embeddings, model.tensors
        self.encoder = model.options.section("encoder")
        self.decoder = model.options.section("decoder")

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        [encoder, decoder] = self.model.dims("encoder.rnn.weight_hh_l0", "decoder.rnn.weight_hh_l0")
        attention = self.decoder.word("attention", "bahdanau")
        return {
            "architecture": "luong",
            "cell": self.encoder.word("rnn_type", "gru"),
            "embedding_dim": self.embeddings.dim,
            "embedding_scale": None if self.embeddings.is_scaled else 1.0,
            "hidden_dim": decoder[1],
            "readout_dim": self.embeddings.readout_dim,
            "num_layers": self.model.count("decoder.rnn.weight_hh_l{}"),
            "score": SCORES.get(attention, "general"),
            "input_feeding": self.decoder.flag("input_feeding", True),
            "imported": {
                "biases": True,
                "bidirectional": True,
                "memory_dim": 2 * encoder[1],
                "encoder_layers": self.model.count("encoder.rnn.weight_hh_l{}"),
                "bridge": BRIDGES.get(self.decoder.word("init_hidden", "bridge"), "none"),
            },
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        self.encoder.only("rnn_type", *CELL_TYPES)
        self.encoder.only("bidirectional", True)
        self.decoder.only("rnn_type", self.encoder.word("rnn_type", "gru"))
        self.decoder.only("attention", *SCORES)
        self.decoder.only("init_hidden", *BRIDGES)
        self.decoder.only("activation", "tanh")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Find them by our names."""
        turn = partial(_context_first, dim=config.hidden_dim)
        names: dict[Any, str | Entry] = {
            **NAMES,
            **encoder_names(config, "encoder.rnn"),
            "output_bias": Made(_zeros),
            "bridge.parts.0": "decoder.bridge_layer",
            "decoder.layers.*.input": "decoder.rnn.{}_ih_l*",
            "decoder.layers.*.hidden": "decoder.rnn.{}_hh_l*",
            "attention.score.key": "decoder.attention.key_layer",
            "attention.score.query": "decoder.attention.query_layer",
            "attention.score.query.bias": Made(_zeros),
            "attention.score.score": "decoder.attention.energy_layer",
            "readout": "decoder.att_vector_layer",
            "readout.weight": Held("decoder.att_vector_layer.weight", change=turn),
        }
        if config.input_feeding:  # the first layer reads a word and the last readout side by side
            first = "decoder.layers.0.input.weight", "decoder.layers.0.context.weight"
            names[first] = Held("decoder.rnn.weight_ih_l0", axis=1)
        return read_weights(luong_shapes(config), Table(names), self.tensors)


def _context_first(weight: Array, dim: int) -> Array:
    """Let a matrix that reads [h; c] read [c; h]."""
    return np.concatenate([weight[:, dim:], weight[:, :dim]], 1)


def _zeros(shape: Shape) -> Array:
    return np.zeros(shape, np.float32)
