"""Reads recurrent encoder-decoders of OpenNMT-py as our `luong`: onmt/encoders/rnn_encoder.py,
onmt/decoders/decoder.py, onmt/modules/global_attention.py.

    dot, general   score(h_t, h_s) = (W h_t) . h_s     readout tanh(W_out [c; h_t])
    mlp            v . tanh(W h_t + b + U h_s)         readout W_out [c; h_t] + b
"""

from typing import Any

from export.readers.common.luong_shapes import encoder_names, luong_shapes
from export.readers.common.tables import Held, Names, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import WeightReader
from export.readers.opennmt.embeddings import NAMES, NEEDLESS, Embeddings

SCORES = {"dot": "dot", "general": "general", "mlp": "concat"}
CELL_TYPES = ("LSTM", "GRU")
CELLS: Names = {
    "decoder.layers.*.input": "decoder.rnn.{}_ih_l*",
    "decoder.layers.*.hidden": "decoder.rnn.{}_hh_l*",
}
FED_CELLS: Names = {  # the first reads a word and the attentional vector side by side
    "decoder.layers.*.input": "decoder.rnn.layers.*.{}_ih",
    "decoder.layers.*.hidden": "decoder.rnn.layers.*.{}_hh",
    ("decoder.layers.0.input.weight", "decoder.layers.0.context.weight"): Held(
        "decoder.rnn.layers.0.weight_ih", axis=1
    ),
}
KEY: dict[
    str, str | Held
] = {  # by our score; in `general` it is the decoder's side that is multiplied
    "dot": "",
    "general": Held("decoder.attn.linear_in", is_transposed=True),
    "concat": "decoder.attn.linear_context",
}


class OpenNMTRecurrent:
    """Reads configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings = model, embeddings
        self.options, self.tensors = model.options, model.tensors

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        score = self.options.word("global_attention", "general")
        return {
            "architecture": "luong",
            "cell": self.options.word("rnn_type", "LSTM").lower(),
            "embedding_dim": self.embeddings.target_dim,
            "hidden_dim": self.embeddings.readout_dim,
            "readout_dim": self.embeddings.readout_dim,
            "embedding_scale": 1.0,
            "num_layers": self.model.count("encoder.rnn.weight_ih_l{}"),
            "score": SCORES.get(score, "general"),
            "input_feeding": bool(self.options.values.get("input_feed", 1)),
            "imported": {
                "biases": score == "mlp",
                "readout": "linear" if score == "mlp" else "tanh",
                "bidirectional": self.options.word("encoder_type", "rnn") == "brnn",
                "bridge": "relu" if self.options.flag("bridge", False) else "none",
            },
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
        }

    def _refuse_what_differs(self) -> None:
        only = self.options.only
        only("decoder_type", "rnn")
        only("rnn_type", *CELL_TYPES)
        only("global_attention", *SCORES)
        only("global_attention_function", "softmax")
        only("input_feed", 0, 1)
        only("coverage_attn", False)
        only("position_encoding", False)
        if "context_gate" in self.options:
            self.options.refuse("context_gate")
        if self.embeddings.source_dim != self.embeddings.target_dim:
            sizes = f"{self.embeddings.source_dim} and {self.embeddings.target_dim}"
            self.model.problems.append(f"embeddings of {sizes} numbers are not supported")

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Find them by our names."""
        shapes = luong_shapes(config)
        names: Names = {
            **NAMES,
            **encoder_names(config, "encoder.rnn"),
            "bridge.parts.*": "encoder.bridge.*",
            **(FED_CELLS if config.input_feeding else CELLS),
            "readout": "decoder.attn.linear_out",
            "attention.score.key": KEY[config.score],
            "attention.score.query": "decoder.attn.linear_query",
            "attention.score.score": "decoder.attn.v",
        }
        return read_weights(shapes, Table(names, {}, NEEDLESS), self.tensors)
