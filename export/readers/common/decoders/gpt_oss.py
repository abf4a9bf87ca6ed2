"""gpt-oss (OpenAI 2025): attention sinks, every second layer with a window, and mixtures of experts
with biases and limits. An expert computes

    down(g * sigmoid(alpha * g) * (u + 1)), g = min(gate(x), limit), |u| <= limit, u from up(x)

Here this is down(swish(g) * u) with other limits: alpha is in the weights of the gate, its inverse
in those of the last layer, and the 1 in the bias of `up`.
"""

from typing import Any

import numpy as np

from export.readers.common.decoders import llama
from export.readers.common.decoders.experts import read_experts
from export.readers.common.decoders.family import IGNORED, LanguageFamily, num_layers, rename
from export.readers.common.options import Options, merge_options
from export.readers.common.weights import Change, Table, TensorReference, scale_by
from models.architectures.llama.config import LlamaConfig

ROPE = {  # where the file has none
    "rope_type": "yarn",
    "factor": 32.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def configure(config: Options) -> dict[str, Any]:
    rename(config, num_experts="num_local_experts")
    config.default_to(num_local_experts=128, num_experts_per_tok=4, rms_norm_eps=1e-5)
    config.default_to(head_dim=64, num_key_value_heads=8, sliding_window=128, rope_parameters=ROPE)
    kinds = ("sliding_attention", "full_attention")
    config.default_to(layer_types=[kinds[layer % 2] for layer in range(num_layers(config))])
    config.only("hidden_act", "silu")
    config.use("experts_per_token", "initial_context_length")  # said by others, too
    config.default_to(swiglu_alpha=1.702, swiglu_limit=7.0)
    alpha, limit = config.positive("swiglu_alpha"), config.positive("swiglu_limit")
    experts = read_experts(config, "num_local_experts", "intermediate_size")
    limits = {"gate": alpha * limit, "up": (1 - limit, 1 + limit)}
    imported = {
        "attention_bias": "all" if config.flag("attention_bias", True) else "none",
        "attention_sinks": True,
        "experts": experts | {"bias": True, "limits": limits},
    }
    rotary = llama.rotary(config, theta=150_000.0)
    return merge_options(llama.sizes(config), rotary, llama.windows(config), {"imported": imported})


def table(options: Options, config: LlamaConfig) -> Table:
    ours, theirs = "layers.*.feed_forward", "model.layers.*.mlp"
    alpha = options.positive("swiglu_alpha")
    names: dict[Any, Any] = {**llama.NAMES, **llama.NORMS, f"{ours}.router": f"{theirs}.router"}
    names["layers.*.attention.sinks"] = "model.layers.*.self_attn.sinks"
    changes: dict[str, Change] = {}
    for number in range(config.imported.experts.num_experts if config.imported.experts else 0):
        one = f"{ours}.experts.{number}"
        for part in ("gate", "up", "down"):
            name = f"{theirs}.experts.{part}_proj{{}}.{number}"
            names[f"{one}.{part}"] = TensorReference(name, ("", "_bias"), is_transposed=True)
        changes[f"{one}.gate"] = scale_by(alpha)
        changes[f"{one}.up.bias"] = lambda bias: bias + np.float32(1)
        changes[f"{one}.down.weight"] = scale_by(1 / alpha)
    return Table(names, changes, IGNORED, prefix="model.")


FAMILIES = {"gpt_oss": LanguageFamily(configure, table)}
