"""Transformers of OpenNMT-py: onmt/encoders/transformer.py and onmt/decoders/transformer.py.

Layers are normalised before the sublayers and at the end; embeddings are multiplied by
sqrt(d_model) before sinusoids are added.
"""

from typing import Any

from export.readers.common.shapes import ACTIVATIONS, sinusoids, transformer_shapes
from export.readers.common.weights import ZEROS, Computed, Names
from export.readers.toolkits.toolkit import LONGEST, ToolkitModel, ToolkitReader

SOURCE = "encoder.embeddings.make_embedding.emb_luts.0.weight"
TARGET = "decoder.embeddings.make_embedding.emb_luts.0.weight"
OUTPUT = "generator.weight"
VOCABULARY = {
    "embedding.weight": TARGET,
    "source_embedding.weight": SOURCE,
    "target_embedding.weight": TARGET,
    "output.weight": OUTPUT,
    "output_bias": "generator.bias",
}
IGNORED = (r"(encoder|decoder)\.embeddings\.make_embedding\.pe\.pe",)  # sinusoids
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
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "decoder_type": ("transformer",),
    "position_encoding": (True,),
    "position_encoding_type": ("SinusoidalInterleaved", "SinusoidalConcat"),
    "max_relative_positions": (0,),
    "relative_positions_buckets": (0,),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "layer_norm": ("standard", "rms"),
    "pos_ffn_activation_fn": ("relu", "gelu", *GATED),
    "parallel_residual": (False,),
    "sliding_window": (0,),
    "num_experts": (0,),
}


def is_tied(reader: ToolkitReader) -> bool:
    """Return whether source, target and output share one table; else there are three."""
    flag = reader.options.flag
    return flag("share_embeddings", False) and flag("share_decoder_embeddings", False)


def read_options(reader: ToolkitReader) -> dict[str, Any]:
    options, count = reader.options, reader.count_layers
    activation = options.word("pos_ffn_activation_fn", "relu")
    is_concatenated = options.word("position_encoding_type", "") == "SinusoidalConcat"
    is_multiquery = options.flag("multiquery", False)
    return {
        "architecture": "transformer",
        "tied_embeddings": is_tied(reader),
        "d_model": reader.dim,
        "num_heads": options.integer("heads", 8),
        "num_kv_heads": options.integer("num_kv", 0) or (1 if is_multiquery else None),
        "ffn_dim": reader.matrix_shapes("encoder.transformer.0.feed_forward.w_1.weight")[0][0],
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
        "imported": {"biases": any(_find_biases(reader).values()), "output_bias": True},
    }


def _find_biases(reader: ToolkitReader) -> dict[str, bool]:
    """Return whether attention has biases, and whether the other layers have."""
    ends = {"attention": "self_attn.linear_query.bias", "feed_forward": "feed_forward.w_1.bias"}
    return {
        kind: any(name.endswith(end) for name in reader.tensors.stored)
        for kind, end in ends.items()
    }


def list_names(reader: ToolkitReader, config: Any) -> Names:
    names: dict[str, str | Computed] = {**VOCABULARY, **NORMS}
    for stack, theirs in LAYERS.items():
        ours = f"{stack}.layers.*"
        names[f"{stack}.positions.weight"] = Computed(sinusoids)
        names[f"{ours}.feed_forward_norm"] = f"{theirs}.*.feed_forward.layer_norm"
        for part, name in (GATES if config.gated_ffn else PLAIN).items():
            names[f"{ours}.feed_forward.{part}"] = f"{theirs}.*.feed_forward.{name}"
        for part, name in ATTENTION.items():
            names[f"{ours}.self_attention.{part}"] = f"{theirs}.*.self_attn.{name}"
            names[f"{ours}.cross_attention.{part}"] = f"{theirs}.*.context_attn.{name}"
    # Zeros where only attention or only the other layers have biases.
    kinds = [kind for kind, has_bias in _find_biases(reader).items() if not has_bias]
    linears = [name for name in names if any(f"{kind}." in name for kind in kinds)]
    return names | {f"{name}.bias": ZEROS for name in linears}


TRANSFORMER = ToolkitModel(SUPPORTED, read_options, transformer_shapes, list_names, IGNORED)
