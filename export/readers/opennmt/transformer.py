"""Transformers of OpenNMT-py (onmt/encoders/transformer.py, onmt/decoders/transformer.py): norms
before the sublayers and at the end, embeddings times sqrt(d_model) plus sinusoids.
"""

from typing import Any

import numpy as np

from export.readers.hugging_face.tensors import Source
from export.readers.opennmt.embeddings import Embeddings
from export.readers.sinusoids import concatenated
from export.readers.torch_models import LONGEST, TorchModel

# pos_ffn_activation_fn -> our activation, and whether a second layer gates it
ACTIVATIONS = {
    "relu": ("relu", False),
    "gelu": ("gelu", False),
    "silu": ("swish", True),
    "gated-gelu": ("gelu", True),
}

PARTS = {"linear_query": "query", "linear_keys": "key", "linear_values": "value"}
OUTPUT = {"final_linear": "output"}


class TransformerReader:
    """Configuration and weights of one checkpoint."""

    def __init__(self, model: TorchModel, embeddings: Embeddings) -> None:
        self.model, self.embeddings = model, embeddings
        self.options, self.tensors = model.options, model.tensors
        self.dim = embeddings.target_dim
        self.has_attention_bias = self._has("self_attn.linear_query.bias")
        self.has_feed_forward_bias = self._has("feed_forward.w_1.bias")

    def _has(self, name: str) -> bool:
        return any(each.endswith(name) for each in self.model.stored)

    def values(self) -> dict[str, Any]:
        """Options of ours."""
        self._refuse_what_differs()
        options, count = self.options, self.model.count
        activation, is_gated = self._activation()
        is_concatenated = options.word("position_encoding_type", "") == "SinusoidalConcat"
        return {
            "architecture": "transformer",
            "d_model": self.dim,
            "num_heads": options.integer("heads", 8),
            "num_kv_heads": self._num_kv_heads(),
            "ffn_dim": self.model.dims("encoder.transformer.0.feed_forward.w_1.weight")[0][0],
            "encoder_layers": count("encoder.transformer.{}.feed_forward.w_1.weight"),
            "decoder_layers": count("decoder.transformer_layers.{}.feed_forward.w_1.weight"),
            "positions": "learned" if is_concatenated else "sinusoidal",
            "max_source_tokens": LONGEST,
            "max_target_tokens": LONGEST,
            "norm_type": "rms" if options.word("layer_norm", "standard") == "rms" else "layer",
            "norm_epsilon": options.number("norm_eps", 1e-6),
            "activation": activation,
            "gated_ffn": is_gated,
            "biases": self.has_attention_bias or self.has_feed_forward_bias,
            "output_bias": True,
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
        only("parallel_residual", False)
        only("sliding_window", 0)
        only("num_experts", 0)
        if self.embeddings.source_dim != self.dim:
            sizes = f"{self.embeddings.source_dim} and {self.dim}"
            self.model.problems.append(f"embeddings of {sizes} numbers are not supported")

    def _activation(self) -> tuple[str, bool]:
        name = self.options.word("pos_ffn_activation_fn", "relu")
        if name not in ACTIVATIONS:
            self.options.refuse("pos_ffn_activation_fn")
        return ACTIVATIONS.get(name, ("relu", False))

    def _num_kv_heads(self) -> int | None:
        number = self.options.integer("num_kv", 0)
        return number or (1 if self.options.flag("multiquery", False) else None)

    def weights(self, config: Any) -> dict[str, Source]:
        """By our names."""
        found = self.embeddings.weights()
        for n in range(config.encoder_layers):
            theirs, ours = f"encoder.transformer.{n}", f"encoder.layers.{n}"
            found |= self._attention(config, f"{theirs}.self_attn", f"{ours}.self_attention")
            found |= self._norm(config, f"{theirs}.layer_norm", f"{ours}.self_attention_norm")
            found |= self._feed_forward(config, theirs, ours)
        for n in range(config.decoder_layers):
            theirs, ours = f"decoder.transformer_layers.{n}", f"decoder.layers.{n}"
            found |= self._attention(config, f"{theirs}.self_attn", f"{ours}.self_attention")
            found |= self._attention(config, f"{theirs}.context_attn", f"{ours}.cross_attention")
            found |= self._norm(config, f"{theirs}.layer_norm_1", f"{ours}.self_attention_norm")
            found |= self._norm(config, f"{theirs}.layer_norm_2", f"{ours}.cross_attention_norm")
            found |= self._feed_forward(config, theirs, ours)
        for stack in ("encoder", "decoder"):
            found |= self._norm(config, f"{stack}.layer_norm", f"{stack}.norm")
            if config.positions == "learned":
                found[f"{stack}.positions.weight"] = lambda: concatenated(LONGEST, self.dim)
        return found

    def _attention(self, config: Any, theirs: str, ours: str) -> dict[str, Source]:
        dim, kv_dim = self.dim, config.kv_heads * (self.dim // config.num_heads)
        rows = {"query": dim, "key": kv_dim, "value": kv_dim, "output": dim}
        found: dict[str, Source] = {}
        for name, part in (PARTS | OUTPUT).items():
            shape, has_bias = (rows[part], dim), self.has_attention_bias
            linear = self._linear(config, f"{theirs}.{name}", f"{ours}.{part}", shape, has_bias)
            found |= linear
        return found

    def _feed_forward(self, config: Any, theirs: str, ours: str) -> dict[str, Source]:
        """Of two layers, or of three: w_1's output goes through the activation."""
        wide, narrow = (config.ffn_dim, self.dim), (self.dim, config.ffn_dim)
        layers = {"w_1": ("up", wide), "w_2": ("down", narrow)}
        if config.gated_ffn:
            layers = {"w_1": ("gate", wide), "w_3": ("up", wide), "w_2": ("down", narrow)}
        found = self._norm(config, f"{theirs}.feed_forward.layer_norm", f"{ours}.feed_forward_norm")
        for name, (part, shape) in layers.items():
            there, here = f"{theirs}.feed_forward.{name}", f"{ours}.feed_forward.{part}"
            found |= self._linear(config, there, here, shape, self.has_feed_forward_bias)
        return found

    def _linear(
        self, config: Any, theirs: str, ours: str, shape: tuple[int, int], has_bias: bool
    ) -> dict[str, Source]:
        """With a bias of zeros where only other layers have one."""
        found = {f"{ours}.weight": self.tensors.take(f"{theirs}.weight", *shape)}
        if has_bias:
            found[f"{ours}.bias"] = self.tensors.take(f"{theirs}.bias", shape[0])
        elif config.biases:
            found[f"{ours}.bias"] = lambda: np.zeros(shape[0], np.float32)
        return found

    def _norm(self, config: Any, theirs: str, ours: str) -> dict[str, Source]:
        parts = ("weight",) if config.norm_type == "rms" else ("weight", "bias")
        return {f"{ours}.{part}": self.tensors.take(f"{theirs}.{part}", self.dim) for part in parts}
