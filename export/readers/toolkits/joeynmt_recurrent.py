"""Recurrent models of JoeyNMT as our `luong`: joeynmt/encoders.py, decoders.py and attention.py.

luong      score(h_t, h_s) = h_t . W h_s
bahdanau   v . tanh(W h_t + U h_s)          readout tanh(W_out [h_t; c] + b), in both
"""

from functools import partial
from typing import Any

import numpy as np

from export.readers.common.shapes import luong_shapes, recurrent_encoder_names
from export.readers.common.weights import ZEROS, Names, TensorReference, WeightSource
from export.readers.toolkits.joeynmt_transformer import (
    OUTPUT,
    VOCABULARY,
    embedding_scale,
    is_tied,
)
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader
from models.safetensors import Array

SCORES = {"luong": "general", "bahdanau": "concat"}
BRIDGES = {"bridge": "tanh", "last": "top", "zero": "zeros", "zeros": "zeros"}
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model.encoder.rnn_type": ("gru", "lstm"),
    "model.encoder.bidirectional": (True,),
    "model.decoder.attention": tuple(SCORES),
    "model.decoder.init_hidden": tuple(BRIDGES),
    "model.decoder.activation": ("tanh",),
}


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    model = reader.options.section("model")
    encoder, decoder = model.section("encoder"), model.section("decoder")
    cell = encoder.word("rnn_type", "gru")
    decoder.only("rnn_type", cell)
    encoder_states, decoder_states, output = reader.matrix_shapes(
        "encoder.rnn.weight_hh_l0", "decoder.rnn.weight_hh_l0", OUTPUT
    )
    return {
        "architecture": "luong",
        "tied_embeddings": is_tied(reader),
        "cell": cell,
        "embedding_dim": reader.dim,
        "embedding_scale": embedding_scale(reader),
        "hidden_dim": decoder_states[1],
        "readout_dim": output[1],
        "num_layers": reader.count_layers("decoder.rnn.weight_hh_l{}"),
        "score": SCORES.get(decoder.word("attention", "bahdanau"), "general"),
        "input_feeding": decoder.flag("input_feeding", True),
        "imported": {
            "biases": True,
            "bidirectional": True,
            "memory_dim": 2 * encoder_states[1],
            "encoder_layers": reader.count_layers("encoder.rnn.weight_hh_l{}"),
            "bridge": BRIDGES.get(decoder.word("init_hidden", "bridge"), "none"),
        },
        "max_source_tokens": LONGEST,
        "max_target_tokens": LONGEST,
    }


def list_names(reader: ToolkitReader, config: Any) -> Names:
    context_first = partial(_put_context_first, dim=config.hidden_dim)
    names: dict[Any, str | WeightSource] = {
        **VOCABULARY,
        **recurrent_encoder_names(config, "encoder.rnn"),
        "output_bias": ZEROS,
        "bridge.parts.0": "decoder.bridge_layer",
        "decoder.layers.*.input": "decoder.rnn.{}_ih_l*",
        "decoder.layers.*.hidden": "decoder.rnn.{}_hh_l*",
        "attention.score.key": "decoder.attention.key_layer",
        "attention.score.query": "decoder.attention.query_layer",
        "attention.score.query.bias": ZEROS,
        "attention.score.score": "decoder.attention.energy_layer",
        "readout": "decoder.att_vector_layer",
        "readout.weight": TensorReference("decoder.att_vector_layer.weight", change=context_first),
    }
    if config.input_feeding:  # the first layer reads a word and the last readout side by side
        first = "decoder.layers.0.input.weight", "decoder.layers.0.context.weight"
        names[first] = TensorReference("decoder.rnn.weight_ih_l0", axis=1)
    return names


def _put_context_first(weight: Array, dim: int) -> Array:
    """Reorder the columns of a matrix for [h; c] into those for [c; h]."""
    return np.concatenate([weight[:, dim:], weight[:, :dim]], 1)


RECURRENT = ToolkitModel(SUPPORTED, read_options, luong_shapes, list_names)
