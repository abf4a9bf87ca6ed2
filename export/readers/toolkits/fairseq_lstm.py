"""LSTMs of fairseq as our `luong`: models/lstm.py.

score(h_t, h_s) = (W h_t) . h_s, readout tanh(W_out [c; h_t]). A layer between the readout and the
output, where there is one, is multiplied into the output.
"""

from typing import Any

import numpy as np

from export.readers.common.shapes import luong_shapes, recurrent_encoder_names
from export.readers.common.weights import (
    ZEROS,
    Merged,
    Names,
    Shape,
    TensorReference,
    WeightSource,
)
from export.readers.toolkits.fairseq_transformer import SOURCE, TARGET
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader
from models.safetensors import Array

OUTPUT, INNER = "decoder.fc_out", "decoder.additional_fc"
BRIDGE = "decoder.encoder_hidden_proj.weight"
ADAPTIVE_SOFTMAX = "decoder.adaptive_softmax.head.weight"
CELLS: dict[Any, str | WeightSource] = {
    "decoder.layers.*.input": "decoder.layers.*.{}_ih",
    "decoder.layers.*.hidden": "decoder.layers.*.{}_hh",
    # the first reads a word and the last readout side by side
    ("decoder.layers.0.input.weight", "decoder.layers.0.context.weight"): TensorReference(
        "decoder.layers.0.weight_ih", axis=1
    ),
}


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    if ADAPTIVE_SOFTMAX in reader.tensors:
        reader.options.refuse("adaptive_softmax_cutoff")
    [encoder, decoder] = reader.matrix_shapes(
        "encoder.lstm.weight_hh_l0", "decoder.layers.0.weight_hh"
    )
    is_bidirectional = "encoder.lstm.weight_hh_l0_reverse" in reader.tensors
    return {
        "architecture": "luong",
        "cell": "lstm",
        "tied_embeddings": _shares_all(reader) and not _has_inner_layer(reader),
        "embedding_dim": reader.dim,
        "embedding_scale": 1.0,
        "hidden_dim": decoder[1],
        "readout_dim": decoder[1],
        "num_layers": reader.count_layers("decoder.layers.{}.weight_hh"),
        "score": "general",
        "imported": {
            "bidirectional": is_bidirectional,
            "memory_dim": encoder[1] * (2 if is_bidirectional else 1),
            "bridge": "linear" if BRIDGE in reader.tensors else "none",
        },
        "max_source_tokens": LONGEST,
        "max_target_tokens": LONGEST,
    }


def _shares_all(reader: ToolkitReader) -> bool:
    return reader.options.flag("share_all_embeddings", False)


def _shares_output(reader: ToolkitReader) -> bool:
    return _shares_all(reader) or reader.options.flag("share_decoder_input_output_embed", False)


def _has_inner_layer(reader: ToolkitReader) -> bool:
    return f"{INNER}.weight" in reader.tensors


def list_names(reader: ToolkitReader, config: Any) -> Names:
    names: dict[Any, str | WeightSource] = {
        "embedding.weight": TARGET,
        "source_embedding.weight": SOURCE,
        "target_embedding.weight": TARGET,
        **recurrent_encoder_names(config, "encoder.lstm"),
        **CELLS,
        "bridge.parts.0": "decoder.encoder_hidden_proj",
        "bridge.parts.1": "decoder.encoder_cell_proj",
        "attention.score.key": TensorReference("decoder.attention.input_proj", is_transposed=True),
        "readout": "decoder.attention.output_proj",
    }
    output = TARGET if _shares_output(reader) else f"{OUTPUT}.weight"
    bias: dict[str, Shape] = {}
    if not _shares_output(reader):
        bias = {f"{OUTPUT}.bias": (config.vocab_size,)}
    if _has_inner_layer(reader):
        [(inner, _)] = reader.matrix_shapes(f"{INNER}.weight")
        outer = {output: (config.vocab_size, inner)}
        layer = {f"{INNER}.weight": (inner, config.hidden_dim)}
        names["output.weight"] = Merged(outer | layer, multiply)
        names["output_bias"] = Merged(outer | {f"{INNER}.bias": (inner,)} | bias, _merge_biases)
    else:
        names["output.weight"] = output
        names["output_bias"] = next(iter(bias), ZEROS)
    if config.tied_embeddings:
        del names["output.weight"]
    if _shares_all(reader):
        reader.tensors.ignore(r"encoder\.embed_tokens\.weight")
    return names


def multiply(outer: Array, inner: Array) -> Array:
    """Multiply matrices, or a matrix and a vector, in double precision."""
    return (outer.astype(np.float64) @ inner).astype(np.float32)


def _merge_biases(outer: Array, inner: Array, *bias: Array) -> Array:
    return multiply(outer, inner) + (bias[0] if bias else np.float32(0))


LSTM = ToolkitModel(
    {"decoder_attention": (True, "1", "True")}, read_options, luong_shapes, list_names
)
