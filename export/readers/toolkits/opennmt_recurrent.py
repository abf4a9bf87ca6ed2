"""Recurrent models of OpenNMT-py as our `luong`: onmt/encoders/rnn_encoder.py,
onmt/decoders/decoder.py and onmt/modules/global_attention.py.

    dot, general   score(h_t, h_s) = (W h_t) . h_s     readout tanh(W_out [c; h_t])
    mlp            v . tanh(W h_t + b + U h_s)         readout W_out [c; h_t] + b
"""

from typing import Any

from export.readers.common.shapes import luong_shapes, recurrent_encoder_names
from export.readers.common.weights import Names, TensorReference
from export.readers.toolkits.opennmt_transformer import IGNORED, OUTPUT, VOCABULARY, is_tied
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader

SCORES = {"dot": "dot", "general": "general", "mlp": "concat"}
CELLS: Names = {
    "decoder.layers.*.input": "decoder.rnn.{}_ih_l*",
    "decoder.layers.*.hidden": "decoder.rnn.{}_hh_l*",
}
FED_CELLS: Names = {  # the first reads a word and the attentional vector side by side
    "decoder.layers.*.input": "decoder.rnn.layers.*.{}_ih",
    "decoder.layers.*.hidden": "decoder.rnn.layers.*.{}_hh",
    ("decoder.layers.0.input.weight", "decoder.layers.0.context.weight"): TensorReference(
        "decoder.rnn.layers.0.weight_ih", axis=1
    ),
}
KEY: dict[
    str, str | TensorReference
] = {  # by our score; in `general` it is the decoder's side that is multiplied
    "dot": "",
    "general": TensorReference("decoder.attn.linear_in", is_transposed=True),
    "concat": "decoder.attn.linear_context",
}
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "decoder_type": ("rnn",),
    "rnn_type": ("LSTM", "GRU"),
    "global_attention": tuple(SCORES),
    "global_attention_function": ("softmax",),
    "input_feed": (0, 1),
    "coverage_attn": (False,),
    "position_encoding": (False,),
    "context_gate": (),
}


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    options = reader.options
    score = options.word("global_attention", "general")
    [output] = reader.matrix_shapes(OUTPUT)
    return {
        "architecture": "luong",
        "tied_embeddings": is_tied(reader),
        "cell": options.word("rnn_type", "LSTM").lower(),
        "embedding_dim": reader.dim,
        "hidden_dim": output[1],
        "readout_dim": output[1],
        "embedding_scale": 1.0,
        "num_layers": reader.count_layers("encoder.rnn.weight_ih_l{}"),
        "score": SCORES.get(score, "general"),
        "input_feeding": bool(options.values.get("input_feed", 1)),
        "imported": {
            "biases": score == "mlp",
            "readout": "linear" if score == "mlp" else "tanh",
            "bidirectional": options.word("encoder_type", "rnn") == "brnn",
            "bridge": "relu" if options.flag("bridge", False) else "none",
        },
        "max_source_tokens": LONGEST,
        "max_target_tokens": LONGEST,
    }


def list_names(reader: ToolkitReader, config: Any) -> Names:
    return {
        **VOCABULARY,
        **recurrent_encoder_names(config, "encoder.rnn"),
        "bridge.parts.*": "encoder.bridge.*",
        **(FED_CELLS if config.input_feeding else CELLS),
        "readout": "decoder.attn.linear_out",
        "attention.score.key": KEY[config.score],
        "attention.score.query": "decoder.attn.linear_query",
        "attention.score.score": "decoder.attn.v",
    }


RECURRENT = ToolkitModel(SUPPORTED, read_options, luong_shapes, list_names, IGNORED)
