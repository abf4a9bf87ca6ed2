"""DeepSeek-V2 and V3 (DeepSeek-AI 2024), and GLM-4.7-Flash, which has their shape.

The ones that run on a CPU are their small relatives: DeepSeek-V2-Lite, DeepSeek-Coder-V2-Lite,
Moonlight-16B-A3B and others of which a token uses some 3 billion weights.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from export.readers.common.decoders import llama
from export.readers.common.decoders.experts import QWEN_MOE, experts_table, read_experts
from export.readers.common.decoders.family import IGNORED, LanguageFamily, num_layers, rename
from export.readers.common.options import MOST_LAYERS, Options, merge_options
from export.readers.common.rope import read_rotary, rope_section, yarn_magnitude
from export.readers.common.weights import Change, Table, TensorReference
from models.architectures.llama.config import LlamaConfig
from models.safetensors import Array

NOPE, ROPE = "qk_nope_head_dim", "qk_rope_head_dim"  # the parts of a head of queries and keys
PREDICTORS = "num_nextn_predict_layers"
V3 = {
    "q_lora_rank": 1536,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "routed_scaling_factor": 2.5,
    "norm_topk_prob": True,
    "first_k_dense_replace": 3,
    "max_position_embeddings": 4096,
}
GLM = V3 | {
    "q_lora_rank": 768,
    "n_routed_experts": 64,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1536,
    "routed_scaling_factor": 1.8,
    "first_k_dense_replace": 1,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "rms_norm_eps": 1e-5,
}


V2 = {
    "q_lora_rank": 1536,
    "n_shared_experts": 2,
    "n_routed_experts": 64,
    "moe_intermediate_size": 1407,
    "routed_scaling_factor": 1.0,
    "first_k_dense_replace": 0,
    "topk_method": "greedy",
}


def configure_v2(config: Options) -> dict[str, Any]:
    config.default_to(**V2)
    config.only("scoring_func", "softmax")
    config.only("topk_method", "greedy", "group_limited_greedy")
    config.only("norm_topk_prob", False)  # transformers ignores it, DeepSeek's own code does not
    config.only("mlp_bias", False)
    is_grouped = config.get("topk_method") == "group_limited_greedy"
    config.use("n_group", "topk_group")
    return _configure(config, {"groups": _groups(config, 1) if is_grouped else None})


def configure_v3(config: Options) -> dict[str, Any]:
    config.default_to(**V3)
    config.only("scoring_func", "sigmoid")
    config.only("topk_method", "noaux_tc")
    options = {"weighting": "sigmoid", "selection_bias": True, "groups": _groups(config, 2)}
    return _configure(config, options | {"normalised": config.flag("norm_topk_prob", True)})


def configure_glm(config: Options) -> dict[str, Any]:
    config.default_to(**GLM)
    config.only("head_dim", config.get(ROPE))  # another name of it
    kinds = config.words("mlp_layer_types")
    dense = [kind == "dense" for kind in kinds]
    if kinds:
        first = dense.index(False) if False in dense else len(dense)
        if any(dense[first:]) or len(kinds) != num_layers(config):
            config.refuse("mlp_layer_types", "must be dense layers, then sparse ones")
        config.values["first_k_dense_replace"] = first
    return configure_v3(config)


def _configure(config: Options, experts: Mapping[str, Any]) -> dict[str, Any]:
    rename(config, num_experts="n_routed_experts", num_local_experts="n_routed_experts")
    config.default_to(kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    config.only("attention_bias", False)
    config.only("moe_layer_freq", 1)
    rename(config, num_mtp_layers=PREDICTORS)
    config.integer(PREDICTORS, 1, MOST_LAYERS)
    config.use("aux_loss_alpha", "ep_size", "head_dim", "qk_head_dim", "rope_interleave", "seq_aux")
    rotated = config.integer(ROPE)
    config.values["head_dim"] = config.integer(NOPE) + rotated
    shared, width = config.integer("n_shared_experts", 0), config.integer("moe_intermediate_size")
    every = read_experts(config, "n_routed_experts", "moe_intermediate_size")
    common = {
        "normalised": False,
        "shared_ffn_dim": shared * width or None,
        "shared_gate": False,
        "scale": config.positive("routed_scaling_factor"),
    }
    dense = min(config.integer("first_k_dense_replace"), num_layers(config))
    imported = {
        "latent_attention": _latent_attention(config),
        "experts": {**every, **common, **experts},
        "layers_without_experts": tuple(range(dense)),
    }
    rotary = read_rotary(config, rope_section(config), rotated).options
    return merge_options(llama.sizes(config), rotary, {"imported": imported})


def _latent_attention(config: Options) -> dict[str, Any]:
    has_query = "q_lora_rank" in config
    return {
        "size": config.integer("kv_lora_rank"),
        "query_size": config.integer("q_lora_rank") if has_query else None,
        "value_size": config.integer("v_head_dim"),
    }


def _groups(config: Options, num_summed: int) -> dict[str, int] | None:
    """Return how groups of experts are chosen; None if all are."""
    number, num_used = config.integer("n_group"), config.integer("topk_group")
    if number == num_used:
        return None
    return {"number": number, "num_used": num_used, "num_summed": num_summed}


def table(options: Options, config: LlamaConfig) -> Table:
    ours, theirs = "layers.*.attention", "model.layers.*.self_attn"
    latent = config.imported.latent_attention
    nope, rope = options.integer(NOPE), options.integer(ROPE)
    has_query = latent is not None and latent.query_size is not None
    names: dict[Any, Any] = {
        f"{ours}.query": f"{theirs}.{'q_b_proj' if has_query else 'q_proj'}",
        f"{ours}.query_latent": f"{theirs}.q_a_proj",
        f"{ours}.query_latent_norm": f"{theirs}.q_a_layernorm",
        (f"{ours}.latent", f"{ours}.shared_key"): f"{theirs}.kv_a_proj_with_mqa",
        f"{ours}.latent_norm": f"{theirs}.kv_a_layernorm",
        (f"{ours}.key", f"{ours}.value"): TensorReference(
            f"{theirs}.kv_b_proj", change=_keys_before_values(config.num_heads, nope)
        ),
        "layers.*.feed_forward.selection_bias": "model.layers.*.mlp.gate.e_score_correction_bias",
    }
    for part, name in QWEN_MOE.items():
        shared = f"model.layers.*.mlp.shared_experts.{name}"
        names[f"layers.*.feed_forward.shared.{part}"] = shared
    more = range(config.num_layers, config.num_layers + options.integer(PREDICTORS, 1))
    predictors = (rf"model\.layers\.{layer}\..*" for layer in more)  # of further tokens
    rotary = _rotary_rows(rope, options.flag("rope_interleave", True))
    changes: dict[str, Change] = {
        f"{ours}.query": _queries(nope, rotary, _scale(options)),
        f"{ours}.shared_key": lambda rows: rows[rotary],
    }
    shared_table = experts_table(config, "model.layers.*.mlp", QWEN_MOE)
    return replace(
        shared_table,
        names={**shared_table.names, **names},
        changes=changes,
        ignored=(*IGNORED, *predictors),
    )


def _rotary_rows(size: int, is_interleaved: bool) -> list[int]:
    """Return the order of numbers in which the first half is rotated with the second."""
    return [*range(0, size, 2), *range(1, size, 2)] if is_interleaved else [*range(size)]


def _scale(options: Options) -> float:
    """Return the factor of scores that YaRN adds in these models."""
    rope = rope_section(options)
    kind, weight = rope.get("rope_type", rope.get("type", "default")), "mscale_all_dim"
    if kind == "default" or not rope.get(weight):
        return 1.0
    return yarn_magnitude(rope.positive("factor"), rope.number(weight)) ** 2


def _queries(nope: int, rotary: list[int], scale: float) -> Change:
    """Put the part that is rotated first, and multiply by the factor of scores."""
    order = [*(nope + row for row in rotary), *range(nope)]

    def change(weight: Array) -> Array:
        heads = weight.reshape(-1, len(order), *weight.shape[1:])
        return (heads[:, order] * np.float32(scale)).reshape(weight.shape)

    return change


def _keys_before_values(num_heads: int, nope: int) -> Change:
    """Put all keys before all values. In the tensor those of a head lie together."""

    def change(joined: Array) -> Array:
        heads = joined.reshape(num_heads, -1, joined.shape[-1])
        parts = heads[:, :nope], heads[:, nope:]
        return np.concatenate([part.reshape(-1, joined.shape[-1]) for part in parts])

    return change


FAMILIES = {
    "deepseek_v2": LanguageFamily(configure_v2, table),
    "deepseek_v3": LanguageFamily(configure_v3, table),
    "glm4_moe_lite": LanguageFamily(configure_glm, table),
}
