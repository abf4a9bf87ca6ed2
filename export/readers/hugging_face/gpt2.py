"""GPT-2 (Radford et al. 2019). Its linear layers are written transposed, [in, out]."""

import math
from typing import Any

from export.readers.hugging_face.decoder_only import (
    Family,
    Placement,
    activation,
    num_layers,
    special_ids,
    times,
)
from export.readers.hugging_face.options import Options
from export.readers.hugging_face.tensors import Source, Tensors, rows, transposed
from models.configs.language_models.gpt2 import GPT2Config

NEEDLESS = r".*\.attn\.(bias|masked_bias)"


def configure(config: Options) -> dict[str, Any]:
    config.only("add_cross_attention", False)
    d_model = config.integer("n_embd")
    return {
        "architecture": "gpt2",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings", config.integer("n_positions")),
        "d_model": d_model,
        "num_layers": num_layers(config, "n_layer"),
        "num_heads": config.integer("n_head"),
        "ffn_dim": config.integer("n_inner", 4 * d_model),
        "norm_epsilon": config.number("layer_norm_epsilon", 1e-5),
        "activation": activation(config, "activation_function", "gelu_new"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        **special_ids(config),
    }


def place(options: Options, config: GPT2Config, tensors: Tensors) -> dict[str, Source]:
    found = Placement(tensors.without("transformer."))
    d_model, shape = config.d_model, (config.vocab_size, config.d_model)
    found.take("embedding.weight", "transformer.wte.weight", *shape)
    positions = tensors.take("transformer.wpe.weight", options.integer("n_positions"), d_model)
    found.weights["positions.weight"] = rows(positions, 0, config.context_length)
    found.layer_norm("norm", "transformer.ln_f", d_model)
    if config.tied_embeddings:
        tensors.drop(r"lm_head\.weight")
    else:
        found.take("output.weight", "lm_head.weight", *shape)
    for layer in range(config.num_layers):
        theirs, ours = f"transformer.h.{layer}", f"layers.{layer}"
        found.layer_norm(f"{ours}.attention_norm", f"{theirs}.ln_1", d_model)
        found.layer_norm(f"{ours}.feed_forward_norm", f"{theirs}.ln_2", d_model)
        qkv = [f"{ours}.attention.{part}" for part in ("query", "key", "value")]
        _linear(found, qkv, f"{theirs}.attn.c_attn", d_model, d_model)
        _linear(found, [f"{ours}.attention.output"], f"{theirs}.attn.c_proj", d_model, d_model)
        ffn = f"{ours}.feed_forward"
        _linear(found, [f"{ffn}.up"], f"{theirs}.mlp.c_fc", d_model, config.ffn_dim)
        _linear(found, [f"{ffn}.down"], f"{theirs}.mlp.c_proj", config.ffn_dim, d_model)
        found.change(qkv[0], times(_scale(options, config, layer)))
    tensors.drop(NEEDLESS)
    return found.weights


def _linear(found: Placement, ours: list[str], theirs: str, into: int, out: int) -> None:
    """Several of ours lie side by side."""
    weight = transposed(found.tensors.take(f"{theirs}.weight", into, out * len(ours)))
    bias = found.tensors.take(f"{theirs}.bias", out * len(ours))
    for index, name in enumerate(ours):
        part = (index * out, (index + 1) * out)
        found.weights[f"{name}.weight"] = rows(weight, *part)
        found.weights[f"{name}.bias"] = rows(bias, *part)


def _scale(options: Options, config: GPT2Config, layer: int) -> float:
    """Of the scores beside 1 / sqrt(head_size), which some models do without."""
    is_scaled = options.flag("scale_attn_weights", True)
    scale = 1.0 if is_scaled else math.sqrt(config.head_size)
    by_layer = options.flag("scale_attn_by_inverse_layer_idx", False)
    return scale / (layer + 1) if by_layer else scale


FAMILY = Family(configure, place)
