"""Configurations and weights of OpenNMT-py's recurrent models and Transformers."""

from collections.abc import Iterable
from typing import Any

from export.readers.common.shapes import (
    ACTIVATIONS,
    luong_shapes,
    recurrent_encoder_names,
    sinusoids,
    transformer_shapes,
)
from export.readers.common.weights import (
    ZEROS,
    Computed,
    Names,
    Table,
    TensorReference,
    WeightReader,
    read_weights,
)
from export.readers.toolkits.toolkit import LONGEST, TorchModel

SOURCE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET = "decoder.embeddings.make_embedding.emb_luts.0.weight"
OUTPUT = "generator.weight"
IGNORED = (r"(encoder|decoder)\.embeddings\.make_embedding\.pe\.pe",)  # sinusoids

NAMES = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
    "output_bias": "generator.bias",
}


class Embeddings:
    """The sizes of the embedding tables and of the output: one table if shared, else three."""

    def __init__(self, model: TorchModel) -> None:
        source, target, output = model.dims(SOURCE, TARGET, OUTPUT)
        self.source_words, self.source_dim = source
        self.target_words, self.target_dim = target
        self.readout_dim = output[1]
        flag = model.options.flag
        shared = flag("share_embeddings", False), flag("share_decoder_embeddings", False)
        self.are_tied = all(shared)


SCORES = {"dot": "dot", "general": "general", "mlp": "concat"}
CELL_TYPES = ("LSTM", "GRU")
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


class OpenNMTRecurrent:
    """A recurrent model as our `luong`: onmt/encoders/rnn_encoder.py, onmt/decoders/decoder.py and
    onmt/modules/global_attention.py.

        dot, general   score(h_t, h_s) = (W h_t) . h_s     readout tanh(W_out [c; h_t])
        mlp            v . tanh(W h_t + b + U h_s)         readout W_out [c; h_t] + b
    """

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
        """Return readers of all weights by our names."""
        shapes = luong_shapes(config)
        names: Names = {
            **NAMES,
            **recurrent_encoder_names(config, "encoder.rnn"),
            "bridge.parts.*": "encoder.bridge.*",
            **(FED_CELLS if config.input_feeding else CELLS),
            "readout": "decoder.attn.linear_out",
            "attention.score.key": KEY[config.score],
            "attention.score.query": "decoder.attn.linear_query",
            "attention.score.score": "decoder.attn.v",
        }
        return read_weights(shapes, Table(names, {}, IGNORED), self.tensors)


GATED = ("silu", "gated-gelu")  # activations with which a second layer gates the first
LAYERS = {"encoder": "encoder.transformer", "decoder": "decoder.transformer_layers"}
ATTENTION = {
    "query": "linear_query",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "final_linear",
}
NORMS = {
    "encoder.layers.*.self_attention_norm": "encoder.transformer.*.layer_norm",
    "decoder.layers.*.self_attention_norm": "decoder.transformer_layers.*.layer_norm_1",
    "decoder.layers.*.cross_attention_norm": "decoder.transformer_layers.*.layer_norm_2",
    "encoder.norm": "encoder.layer_norm",
    "decoder.norm": "decoder.layer_norm",
}
# w_1's output goes through the activation
PLAIN, GATES = {"up": "w_1", "down": "w_2"}, {"gate": "w_1", "up": "w_3", "down": "w_2"}


class OpenNMTTransformer:
    """A Transformer: onmt/encoders/transformer.py and onmt/decoders/transformer.py.

    Layers are normalised before the sublayers and at the end; embeddings are multiplied by
    sqrt(d_model) before sinusoids are added.
    """

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings = model, embeddings
        self.options, self.tensors = model.options, model.tensors
        self.dim = embeddings.target_dim
        self.has_attention_bias = self._has("self_attn.linear_query.bias")
        self.has_feed_forward_bias = self._has("feed_forward.w_1.bias")

    def _has(self, name: str) -> bool:
        return any(each.endswith(name) for each in self.tensors.stored)

    def values(self) -> dict[str, Any]:
        """Read options of ours."""
        self._refuse_what_differs()
        options, count = self.options, self.model.count
        activation = options.word("pos_ffn_activation_fn", "relu")
        is_concatenated = options.word("position_encoding_type", "") == "SinusoidalConcat"
        return {
            "architecture": "transformer",
            "d_model": self.dim,
            "num_heads": options.integer("heads", 8),
            "num_kv_heads": self._num_kv_heads(),
            "ffn_dim": self.model.dims("encoder.transformer.0.feed_forward.w_1.weight")[0][0],
            "encoder_layers": count("encoder.transformer.{}.feed_forward.w_1.weight"),
            "decoder_layers": count("decoder.transformer_layers.{}.feed_forward.w_1.weight"),
            "positions": {"kind": "learned" if is_concatenated else "sinusoidal"},
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
            "norm": {
                "kind": "rms" if options.word("layer_norm", "standard") == "rms" else "layer",
                "epsilon": options.number("norm_eps", 1e-6),
            },
            "activation": ACTIVATIONS.get(activation.removeprefix("gated-"), "relu"),
            "gated_ffn": activation in GATED,
            "imported": {
                "biases": self.has_attention_bias or self.has_feed_forward_bias,
                "output_bias": True,
            },
        }

    def _refuse_what_differs(self) -> None:
        only = self.options.only
        only("decoder_type", "transformer")
        only("position_encoding", True)
        only("position_encoding_type", "SinusoidalInterleaved", "SinusoidalConcat")
        only("max_relative_positions", 0)
        only("relative_positions_buckets", 0)
        only("self_attn_type", "scaled-dot", "scaled-dot-flash")
        only("layer_norm", "standard", "rms")
        only("pos_ffn_activation_fn", "relu", "gelu", *GATED)
        only("parallel_residual", False)
        only("sliding_window", 0)
        only("num_experts", 0)
        if self.embeddings.source_dim != self.dim:
            sizes = f"{self.embeddings.source_dim} and {self.dim}"
            self.model.problems.append(f"embeddings of {sizes} numbers are not supported")

    def _num_kv_heads(self) -> int | None:
        number = self.options.integer("num_kv", 0)
        return number or (1 if self.options.flag("multiquery", False) else None)

    def weights(self, config: Any) -> dict[str, WeightReader]:
        """Return readers of all weights by our names."""
        table = Table(self._names(config), ignored=IGNORED)
        return read_weights(transformer_shapes(config), table, self.tensors)

    def _names(self, config: Any) -> Names:
        names: dict[str, str | Computed] = {**NAMES, **NORMS}
        for stack, theirs in LAYERS.items():
            ours = f"{stack}.layers.*"
            names[f"{stack}.positions.weight"] = Computed(sinusoids)
            names[f"{ours}.feed_forward_norm"] = f"{theirs}.*.feed_forward.layer_norm"
            for part, name in (GATES if config.gated_ffn else PLAIN).items():
                names[f"{ours}.feed_forward.{part}"] = f"{theirs}.*.feed_forward.{name}"
            for part, name in ATTENTION.items():
                names[f"{ours}.self_attention.{part}"] = f"{theirs}.*.self_attn.{name}"
                names[f"{ours}.cross_attention.{part}"] = f"{theirs}.*.context_attn.{name}"
        return names | self._made_biases(names)

    def _made_biases(self, names: Iterable[str]) -> dict[str, Computed]:
        """Make zeros where only attention or only the other layers have biases."""
        has = {"attention": self.has_attention_bias, "feed_forward": self.has_feed_forward_bias}
        kinds = [kind for kind, has_bias in has.items() if not has_bias]
        linear = [name for name in names if any(f"{kind}." in name for kind in kinds)]
        return {f"{name}.bias": ZEROS for name in linear}
