"""GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023)."""

from collections.abc import Callable
from typing import Any

from export.readers.hugging_face.decoder_only import (
    Family,
    Placement,
    activation,
    num_layers,
    special_ids,
)
from export.readers.hugging_face.options import Options
from export.readers.hugging_face.rope import read_rotary, rope_section
from export.readers.hugging_face.tensors import Source, Tensors, then
from models.arrays import Array
from models.configs.language_models.gpt_neox import GPTNeoXConfig

NEEDLESS = r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"


def configure(config: Options) -> dict[str, Any]:
    rope = rope_section(config)
    found = sizes(config, act="gelu")
    theta, portion = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    head_size = found["d_model"] // max(found["num_heads"], 1)
    rotary = read_rotary(config, rope, head_size, theta=theta, portion=portion)
    return {
        **found,
        **rotary.options,
        "parallel_residual": config.flag("use_parallel_residual", True),
        "attention_bias": config.flag("attention_bias", True),
    }


def sizes(config: Options, act: str) -> dict[str, Any]:
    """What Phi writes alike; act: where the file does not say."""
    return {
        "architecture": "gpt-neox",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": config.integer("hidden_size"),
        "num_layers": num_layers(config),
        "num_heads": config.integer("num_attention_heads"),
        "ffn_dim": config.integer("intermediate_size"),
        "norm_epsilon": config.number("layer_norm_eps", 1e-5),
        "activation": activation(config, "hidden_act", act),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **special_ids(config),
    }


def place(options: Options, config: GPTNeoXConfig, tensors: Tensors) -> dict[str, Source]:
    found = Placement(tensors.without("gpt_neox."))
    d_model, shape = config.d_model, (config.vocab_size, config.d_model)
    found.take("embedding.weight", "gpt_neox.embed_in.weight", *shape)
    found.layer_norm("norm", "gpt_neox.final_layer_norm", d_model)
    if config.tied_embeddings:
        tensors.drop(r"embed_out\.weight")
    else:
        found.take("output.weight", "embed_out.weight", *shape)
    for layer in range(config.num_layers):
        theirs, ours = f"gpt_neox.layers.{layer}", f"layers.{layer}"
        found.layer_norm(f"{ours}.attention_norm", f"{theirs}.input_layernorm", d_model)
        found.layer_norm(f"{ours}.feed_forward_norm", f"{theirs}.post_attention_layernorm", d_model)
        _attention(found, config, f"{ours}.attention", f"{theirs}.attention")
        sizes, name = (config.ffn_dim, d_model), f"{ours}.feed_forward"
        found.linear(f"{name}.up", f"{theirs}.mlp.dense_h_to_4h", *sizes, bias=True)
        found.linear(f"{name}.down", f"{theirs}.mlp.dense_4h_to_h", *sizes[::-1], bias=True)
    tensors.drop(NEEDLESS)
    return found.weights


def _attention(found: Placement, config: GPTNeoXConfig, ours: str, theirs: str) -> None:
    """Their query, key and value of a head lie together: [heads, 3, head_size, d_model]."""
    bias, size = config.attention_bias, config.d_model
    shapes: dict[str, tuple[int, ...]] = {"weight": (3 * size, size)}
    if bias:
        shapes["bias"] = (3 * size,)
    for kind, shape in shapes.items():
        joined = found.tensors.take(f"{theirs}.query_key_value.{kind}", *shape)
        for index, part in enumerate(("query", "key", "value")):
            found.weights[f"{ours}.{part}.{kind}"] = then(joined, _part(config, index))
    found.linear(f"{ours}.output", f"{theirs}.dense", size, size, bias=bias)


def _part(config: GPTNeoXConfig, index: int) -> Callable[[Array], Array]:
    def part(joined: Array) -> Array:
        rest = joined.shape[1:]
        parts = joined.reshape(config.num_heads, 3, config.head_size, *rest)
        return parts[:, index].reshape(-1, *rest)

    return part


FAMILY = Family(configure, place)
