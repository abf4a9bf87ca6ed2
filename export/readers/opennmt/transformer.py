"""Reads Transformers of OpenNMT-py (onmt/encoders/transformer.py, onmt/decoders/transformer.py):
norms before the sublayers and at the end, embeddings times sqrt(d_model) plus sinusoids.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from export.readers.common.activations import ACTIVATIONS
from export.readers.common.shapes import transformer_shapes
from export.readers.common.sinusoids import sinusoids
from export.readers.common.tables import Made, Names, Table, read_weights
from export.readers.common.toolkits import LONGEST, TorchModel
from export.readers.common.weights import WeightReader
from export.readers.opennmt.embeddings import NAMES, NEEDLESS, Embeddings

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
    """Reads configuration and weights of one checkpoint."""

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
        """Find them by our names."""
        table = Table(self._names(config), needless=NEEDLESS)
        return read_weights(transformer_shapes(config), table, self.tensors)

    def _names(self, config: Any) -> Names:
        names: dict[str, str | Made] = {**NAMES, **NORMS}
        for stack, theirs in LAYERS.items():
            ours = f"{stack}.layers.*"
            names[f"{stack}.positions.weight"] = Made(sinusoids)
            names[f"{ours}.feed_forward_norm"] = f"{theirs}.*.feed_forward.layer_norm"
            for part, name in (GATES if config.gated_ffn else PLAIN).items():
                names[f"{ours}.feed_forward.{part}"] = f"{theirs}.*.feed_forward.{name}"
            for part, name in ATTENTION.items():
                names[f"{ours}.self_attention.{part}"] = f"{theirs}.*.self_attn.{name}"
                names[f"{ours}.cross_attention.{part}"] = f"{theirs}.*.context_attn.{name}"
        return names | self._made_biases(names)

    def _made_biases(self, names: Iterable[str]) -> dict[str, Made]:
        """Make zeros where only attention or only the other layers have biases."""
        has = {"attention": self.has_attention_bias, "feed_forward": self.has_feed_forward_bias}
        kinds = [kind for kind, has_bias in has.items() if not has_bias]
        linear = [name for name in names if any(f"{kind}." in name for kind in kinds)]
        return {f"{name}.bias": Made(partial(np.zeros, dtype=np.float32)) for name in linear}
