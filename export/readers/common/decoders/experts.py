"""Families whose layers are mixtures of experts, in Llama's shape otherwise.

Mixtral (Jiang et al. 2024), Qwen2-MoE, which has a network for all tokens besides (Qwen Team 2024),
and Qwen3-MoE (Qwen Team 2025). Their experts are written one by one.
"""

from dataclasses import replace
from typing import Any

from export.readers.common.decoders import llama
from export.readers.common.decoders.family import IGNORED, LanguageFamily, head_size, num_layers
from export.readers.common.options import MOST_EXPERTS, Options, merge_options
from export.readers.common.weights import Names, Table
from models.architectures.llama.config import LlamaConfig


def configure_qwen2_moe(config: Options) -> dict[str, Any]:
    config.default_to(num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408)
    if config.flag("use_sliding_window", False):
        most, layers = config.integer("max_window_layers", 28), range(num_layers(config))
        kinds = ("full_attention", "sliding_attention")
        config.default_to(layer_types=[kinds[i < most and i % 2 == 0] for i in layers])
    experts = {"shared_ffn_dim": config.integer("shared_expert_intermediate_size", 5632)}
    imported = _qwen_experts(config) | {
        "attention_bias": "qkv" if config.flag("qkv_bias", True) else "none"
    }
    imported["experts"] |= experts
    return merge_options(llama.configure_qwen2(config), {"imported": imported})


def configure_qwen3_moe(config: Options) -> dict[str, Any]:
    config.default_to(num_experts_per_tok=8, num_local_experts=128, moe_intermediate_size=768)
    imported = _qwen_experts(config)
    config.default_to(head_dim=head_size(config))
    return merge_options(llama.configure_qwen3(config), {"imported": imported})


def _qwen_experts(config: Options) -> dict[str, Any]:
    """Return the options of experts, and of the layers that have none."""
    step, dense = config.integer("decoder_sparse_step", 1), config.integers("mlp_only_layers")
    layers = range(num_layers(config))
    without = tuple(i for i in layers if i in dense or (i + 1) % max(step, 1))
    number = "num_experts" if "num_experts" in config else "num_local_experts"
    experts = read_experts(config, number, "moe_intermediate_size")
    experts |= {"normalised": config.flag("norm_topk_prob", False)}
    return {"experts": experts, "layers_without_experts": without}


def configure_mixtral(config: Options) -> dict[str, Any]:
    config.default_to(num_local_experts=8, num_experts_per_tok=2, rms_norm_eps=1e-5)
    experts = read_experts(config, "num_local_experts", "intermediate_size")
    sizes, rotary = llama.sizes(config), llama.rotary(config, theta=1_000_000.0)
    return merge_options(sizes, rotary, llama.windows(config), {"imported": {"experts": experts}})


def read_experts(config: Options, number: str, size: str) -> dict[str, Any]:
    """Read what all write alike."""
    config.use("router_aux_loss_coef", "router_jitter_noise", "output_router_logits")
    return {
        "num_experts": config.integer(number, at_most=MOST_EXPERTS),
        "num_used": config.integer("num_experts_per_tok"),
        "ffn_dim": config.integer(size),
    }


QWEN_MOE = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}


def qwen2_moe_table(options: Options, config: LlamaConfig) -> Table:
    ours, theirs = "layers.*.feed_forward", "model.layers.*.mlp"
    shared = {
        f"{ours}.shared.{part}": f"{theirs}.shared_expert.{n}" for part, n in QWEN_MOE.items()
    }
    table = experts_table(config, theirs, QWEN_MOE)
    gate = {f"{ours}.shared_gate": f"{theirs}.shared_expert_gate"}
    return replace(table, names={**table.names, **shared, **gate})


def qwen3_moe_table(options: Options, config: LlamaConfig) -> Table:
    return experts_table(config, "model.layers.*.mlp", QWEN_MOE)


def mixtral_table(options: Options, config: LlamaConfig) -> Table:
    return experts_table(config, "model.layers.*.block_sparse_moe", MIXTRAL)


def experts_table(config: LlamaConfig, place: str, parts: dict[str, str]) -> Table:
    ours, experts = "layers.*.feed_forward", config.imported.experts
    names: Names = {**llama.NAMES, **llama.NORMS, f"{ours}.router": f"{place}.gate"}
    expert_names = {
        f"{ours}.experts.{number}.{part}": f"{place}.experts.{number}.{theirs}"
        for number in range(experts.num_experts if experts else 0)
        for part, theirs in parts.items()
    }
    return Table({**names, **expert_names}, ignored=IGNORED, prefix="model.")


FAMILIES = {
    "mixtral": LanguageFamily(configure_mixtral, mixtral_table),
    "qwen2_moe": LanguageFamily(configure_qwen2_moe, qwen2_moe_table),
    "qwen3_moe": LanguageFamily(configure_qwen3_moe, qwen3_moe_table),
}
