"""Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024): Llamas with projections written side by side."""

from typing import Any

from export.readers.hugging_face import llama
from export.readers.hugging_face.decoder_only import Family, Placement
from export.readers.hugging_face.options import Options
from export.readers.hugging_face.rope import rope_section
from export.readers.hugging_face.tensors import Source, Tensors, rows
from models.configs.language_models.llama import LlamaConfig


def configure(config: Options) -> dict[str, Any]:
    """Its early files call LongRoPE "su" or "yarn"."""
    config.default_to(rms_norm_eps=1e-5)
    rope = rope_section(config)
    for name in ("type", "rope_type"):
        if rope.values.get(name) == "yarn":
            rope.values[name] = "longrope"
    return {**llama.sizes(config), **llama.rotary(config, rope=rope), **llama.windows(config)}


def place(options: Options, config: LlamaConfig, tensors: Tensors) -> dict[str, Source]:
    found = Placement(tensors.without("model."))
    llama.outer_weights(found, config)
    for layer in range(config.num_layers):
        theirs, ours = f"model.layers.{layer}", f"layers.{layer}"
        kv_dim, query_dim = (n * config.head_size for n in (config.num_kv_heads, config.num_heads))
        attention = {"query": query_dim, "key": kv_dim, "value": kv_dim}
        qkv = f"{theirs}.self_attn.qkv_proj.weight"
        _parts(found, f"{ours}.attention", qkv, attention, config.d_model)
        gates = {"gate": config.ffn_dim, "up": config.ffn_dim}
        gate_up = f"{theirs}.mlp.gate_up_proj.weight"
        _parts(found, f"{ours}.feed_forward", gate_up, gates, config.d_model)
        into = {"attention.output": (f"{theirs}.self_attn.o_proj", query_dim)}
        into["feed_forward.down"] = (f"{theirs}.mlp.down_proj", config.ffn_dim)
        for name, (linear, dim) in into.items():
            found.linear(f"{ours}.{name}", linear, config.d_model, dim, bias=False)
        llama.norm_weights(found, config, layer, llama.NORMS)
    return found.weights


def _parts(found: Placement, ours: str, theirs: str, sizes: dict[str, int], into: int) -> None:
    """One weight of theirs is several of ours, one below the other."""
    whole, start = found.tensors.take(theirs, sum(sizes.values()), into), 0
    for part, size in sizes.items():
        found.weights[f"{ours}.{part}.weight"] = rows(whole, start, start + size)
        start += size


FAMILY = Family(configure, place)
