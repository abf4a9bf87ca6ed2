"""GPT-2 (Radford et al. 2019), GPT-NeoX (Black et al. 2022), Pythia (Biderman et al. 2023), Phi.

GPT-2's linear layers are written transposed, [in, out]. Phi-1 to Phi-2 (Gunasekar et al. 2023, Li
et al. 2023) are GPT-NeoX models whose sublayers share one norm and whose output has a bias.
"""

import math
from functools import partial
from typing import Any

from export.readers.common import llama
from export.readers.common import llama as gemma
from export.readers.common.llama import (
    QUERY_KEY_VALUE,
    LanguageFamily,
    num_layers,
    special_ids,
)
from export.readers.common.options import Options, joined
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.shapes import read_activation
from export.readers.common.weights import Held, Names, Table, times
from models.architectures.gpt2.config import GPT2Config
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.architectures.mamba2.config import Mamba2Config
from models.safetensors import Array

GPT2_NEEDLESS = r".*\.attn\.(bias|masked_bias)"


def configure_gpt2(config: Options) -> dict[str, Any]:
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
        "activation": read_activation(config, "activation_function", "gelu_new"),
        "tied_embeddings": config.flag("tie_word_embeddings", True),
        **special_ids(config),
    }


def gpt2_table(options: Options, config: GPT2Config) -> Table:
    names: Names = {
        "embedding": "transformer.wte",
        "positions": Held(
            "transformer.wpe",
            shape=(options.integer("n_positions"), config.d_model),
            change=lambda table: table[: config.context_length],
        ),
        "norm": "transformer.ln_f",
        "output": "lm_head",
        "layers.*.attention_norm": "transformer.h.*.ln_1",
        "layers.*.feed_forward_norm": "transformer.h.*.ln_2",
        QUERY_KEY_VALUE: _linear("attn.c_attn"),
        "layers.*.attention.output": _linear("attn.c_proj"),
        "layers.*.feed_forward.up": _linear("mlp.c_fc"),
        "layers.*.feed_forward.down": _linear("mlp.c_proj"),
    }
    changes = {
        f"layers.{n}.attention.query": times(_scale(options, config, n))
        for n in range(config.num_layers)
    }
    return Table(names, changes, needless=(GPT2_NEEDLESS,), prefix="transformer.")


def _linear(name: str) -> Held:
    return Held(f"transformer.h.*.{name}", is_transposed=True)


def _scale(options: Options, config: GPT2Config, layer: int) -> float:
    """Scale the scores beside 1 / sqrt(head_size), which some models do without."""
    is_scaled = options.flag("scale_attn_weights", True)
    scale = 1.0 if is_scaled else math.sqrt(config.head_size)
    by_layer = options.flag("scale_attn_by_inverse_layer_idx", False)
    return scale / (layer + 1) if by_layer else scale


GPT2 = LanguageFamily(configure_gpt2, gpt2_table)


GPT_NEOX_NEEDLESS = r".*\.attention\.(bias|masked_bias|rotary_emb\.inv_freq)"
GPT_NEOX_NAMES = {
    "embedding": "gpt_neox.embed_in",
    "norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "layers.*.attention_norm": "gpt_neox.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "gpt_neox.layers.*.post_attention_layernorm",
    "layers.*.attention.output": "gpt_neox.layers.*.attention.dense",
    "layers.*.feed_forward.up": "gpt_neox.layers.*.mlp.dense_h_to_4h",
    "layers.*.feed_forward.down": "gpt_neox.layers.*.mlp.dense_4h_to_h",
}


def configure_gpt_neox(config: Options) -> dict[str, Any]:
    rope = rope_section(config)
    found = sizes(config, act="gelu")
    theta, portion = config.number("rotary_emb_base", 10000.0), config.number("rotary_pct", 0.25)
    head_size = found["d_model"] // max(found["num_heads"], 1)
    rotary = read_rotary(config, rope, head_size, theta=theta, portion=portion)
    return joined(
        found,
        rotary.options,
        {"parallel_residual": config.flag("use_parallel_residual", True)},
        {"imported": {"attention_bias": config.flag("attention_bias", True)}},
    )


def sizes(config: Options, act: str) -> dict[str, Any]:
    """Read what Phi writes alike; act: where the file does not say."""
    return {
        "architecture": "gpt-neox",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": config.integer("hidden_size"),
        "num_layers": num_layers(config),
        "num_heads": config.integer("num_attention_heads"),
        "ffn_dim": config.integer("intermediate_size"),
        "norm_epsilon": config.number("layer_norm_eps", 1e-5),
        "activation": read_activation(config, "hidden_act", act),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        **special_ids(config),
    }


def gpt_neox_table(options: Options, config: GPTNeoXConfig) -> Table:
    name = "gpt_neox.layers.*.attention.query_key_value"
    names: Names = {
        **GPT_NEOX_NAMES,
        QUERY_KEY_VALUE: Held(name, change=partial(_parts_apart, config)),
    }
    return Table(names, needless=(GPT_NEOX_NEEDLESS,), prefix="gpt_neox.")


def _parts_apart(config: GPTNeoXConfig, joined: Array) -> Array:
    """Their query, key and value of a head lie together: [heads, 3, head_size, ...]."""
    by_head = joined.reshape(config.num_heads, 3, config.head_size, *joined.shape[1:])
    return by_head.swapaxes(0, 1).reshape(joined.shape)


GPT_NEOX = LanguageFamily(configure_gpt_neox, gpt_neox_table)


def configure_phi(config: Options) -> dict[str, Any]:
    config.only("qk_layernorm", False)
    config.only("tie_word_embeddings", False)
    found = sizes(config, act="gelu_new")
    num_kv_heads = config.integer("num_key_value_heads", found["num_heads"])
    rotary = read_rotary(config, rope_section(config), llama.head_size(config), portion=0.5)
    more = {"num_kv_heads": num_kv_heads, "imported": {"output_bias": True}}
    return joined(found, rotary.options, more)


PHI_NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.final_layernorm",
    "output": "lm_head",
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.input_layernorm",
    "layers.*.attention.query": "model.layers.*.self_attn.q_proj",
    "layers.*.attention.key": "model.layers.*.self_attn.k_proj",
    "layers.*.attention.value": "model.layers.*.self_attn.v_proj",
    "layers.*.attention.output": "model.layers.*.self_attn.dense",
    "layers.*.feed_forward.up": "model.layers.*.mlp.fc1",
    "layers.*.feed_forward.down": "model.layers.*.mlp.fc2",
}


def phi_table(options: Options, config: GPTNeoXConfig) -> Table:
    return Table(PHI_NAMES, needless=llama.NEEDLESS, prefix="model.")


PHI = LanguageFamily(configure_phi, phi_table)


CONTEXT_LENGTH = 2**15
# JSON has no infinity: there are Python's way to write one, and that of transformers from 5 on.
NO_LIMITS = ([0.0, math.inf], [0.0, {"__float__": "Infinity"}])
PARTS = ("z", "x", "B", "C", "dt")
NAMES: Names = {
    "embedding": "backbone.embeddings",
    "norm": "backbone.norm_f",
    "output": "lm_head",
    "layers.*.norm": "backbone.layers.*.norm",
    tuple(f"layers.*.mixer.{part}" for part in PARTS): "backbone.layers.*.mixer.in_proj",
    "layers.*.mixer.conv": "backbone.layers.*.mixer.conv1d",
    "layers.*.mixer.norm": "backbone.layers.*.mixer.norm",
    "layers.*.mixer.output": "backbone.layers.*.mixer.out_proj",
    **{
        f"layers.*.mixer.{name}": f"backbone.layers.*.mixer.{name}"
        for name in ("A_log", "D", "dt_bias")
    },
}


def configure_mamba2(config: Options) -> dict[str, Any]:
    config.only("hidden_act", "silu", "swish")
    config.only("time_step_limit", *NO_LIMITS)
    d_model, expand = config.integer("hidden_size"), config.integer("expand", 2)
    num_heads, head_dim = config.integer("num_heads", 128), config.integer("head_dim", 64)
    if num_heads * head_dim != expand * d_model:
        config.refuse("num_heads", f"of {head_dim} are not {expand} times {d_model}")
    return {
        "architecture": "mamba2",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": d_model,
        "num_layers": num_layers(config),
        "num_heads": num_heads,
        "head_dim": head_dim,
        "state_dim": config.integer("state_size", 128),
        "num_groups": config.integer("n_groups", 8),
        "conv_kernel_size": config.integer("conv_kernel", 4),
        "norm_epsilon": config.number("layer_norm_epsilon", 1e-5),
        "tied_embeddings": config.flag("tie_word_embeddings", False),
        "imported": {
            "biases": config.flag("use_bias", False),
            "conv_bias": config.flag("use_conv_bias", True),
        },
        **special_ids(config),
    }


def mamba2_table(options: Options, config: Mamba2Config) -> Table:
    return Table(NAMES, prefix="backbone.")


MAMBA2 = LanguageFamily(configure_mamba2, mamba2_table, CONTEXT_LENGTH)


FAMILIES: dict[str, LanguageFamily] = {
    "gemma": gemma.GEMMA,
    "gemma2": gemma.GEMMA2,
    "gemma3_text": gemma.GEMMA3,
    "gpt2": GPT2,
    "gpt_neox": GPT_NEOX,
    "llama": llama.LLAMA,
    "mamba2": MAMBA2,
    "mistral": llama.MISTRAL,
    "phi": PHI,
    "phi3": llama.PHI3,
    "qwen2": llama.QWEN2,
    "qwen3": llama.QWEN3,
    "smollm3": llama.SMOLLM3,
}
