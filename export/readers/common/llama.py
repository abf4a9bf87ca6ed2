"""Llama and the families of its shape.

Llama 1 to 3.2, SmolLM and SmolLM2; Mistral (Jiang et al. 2023), where a layer may attend to a
window of the last positions; Qwen2 and Qwen2.5 with biases of queries, keys and values (Qwen Team
2024), Qwen3 with norms of queries and keys (Qwen Team 2025); SmolLM3 (Bakouch et al. 2025), of
which every fourth layer does not rotate; Phi-3, Phi-3.5 and Phi-4 (Abdin et al. 2024), whose
projections are written side by side.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from export.readers.common.options import MOST_LAYERS, Options, joined
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.shapes import (
    read_activation,
    shapes_of,
)
from export.readers.common.weights import (
    Change,
    Held,
    Names,
    Table,
    Tensors,
    WeightReader,
    read_weights,
    times,
)
from models.architectures.llama.config import LlamaConfig
from models.safetensors import Array

QUERY_KEY_VALUE = tuple(f"layers.*.attention.{part}" for part in ("query", "key", "value"))


class LanguageFamily(NamedTuple):
    """configure: returns the values of our configuration from `config.json`.
    table: returns which tensor of the file is which weight, from `config.json` and our
        configuration.
    context_length: the default length for models that read texts of any length; None: the file says
        it.
    """

    configure: Callable[[Options], dict[str, Any]]
    table: Callable[[Options, Any], Table]
    context_length: int | None = None

    def has_own_output(self, options: Options, config: Any, tensors: Tensors) -> bool:
        """Return whether the output layer has a table of its own, with other numbers than the
        embedding.
        """
        table = self.table(options, config)
        tensors.prefix = table.prefix
        return tensors.differ(*(f"{name}.weight" for name in _vocabulary(table)))

    def weights(self, options: Options, config: Any, tensors: Tensors) -> dict[str, WeightReader]:
        """Return readers of all weights. Problems are collected."""
        table = self.table(options, config)
        if config.tied_embeddings:  # under either name
            embedding, output = _vocabulary(table)
            names = {**table.names, "embedding": Held((embedding, output, embedding))}
            table = replace(table, names=names)
        return read_weights(shapes_of(config), table, tensors)


def _vocabulary(table: Table) -> tuple[str, str]:
    """Return the names of the tensors of the embedding and the output layer."""
    return str(table.names["embedding"]), str(table.names["output"])


def num_layers(config: Options, name: str = "num_hidden_layers") -> int:
    """Read the number of layers, within a sane limit."""
    return config.integer(name, at_most=MOST_LAYERS)


def special_ids(config: Options) -> dict[str, int]:
    """Return the ids of our special tokens. A token that a model does not have gets the id of its
    end token.
    """
    known = {name: config.ids(f"{name}_token_id") for name in ("eos", "bos", "pad")}
    known = {name: tuple(i for i in ids if i >= 0) for name, ids in known.items()}
    (end, *_) = (*known["eos"], *known["bos"], *known["pad"], 0)
    return {f"{name}_id": next(iter(ids), end) for name, ids in known.items()}


NEEDLESS = (r"(.*\.)?rotary_emb\.inv_freq",)


def configure_llama(config: Options) -> dict[str, Any]:
    """Read a Llama, which has biases everywhere or nowhere."""
    config.only("rope_interleaved", False)  # of nanotron, as SmolLM's files say
    config.use("is_llama_config")
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
    }
    return joined(sizes(config), rotary(config), {"imported": imported})


def sizes(config: Options, *, is_tied: bool = False, act: str = "hidden_act") -> dict[str, Any]:
    """Read what all models of this shape write alike; is_tied: where the file does not say."""
    return {
        "architecture": "llama",
        "vocab_size": config.integer("vocab_size"),
        "context_length": config.integer("max_position_embeddings"),
        "d_model": config.integer("hidden_size"),
        "num_layers": num_layers(config),
        "num_heads": (num_heads := config.integer("num_attention_heads")),
        "num_kv_heads": config.integer("num_key_value_heads", num_heads),
        "head_dim": config.integer("head_dim") if "head_dim" in config else None,
        "ffn_dim": config.integer("intermediate_size"),
        "norm_epsilon": config.number("rms_norm_eps", 1e-6),
        "activation": read_activation(config, act, "silu"),
        "tied_embeddings": config.flag("tie_word_embeddings", is_tied),
        **special_ids(config),
    }


def head_size(config: Options) -> int:
    whole = config.integer("hidden_size") // max(config.integer("num_attention_heads"), 1)
    return config.integer("head_dim", whole)


def rotary(
    config: Options, *, theta: float = 10000.0, rope: Options | None = None
) -> dict[str, Any]:
    """Return the rotary table of all layers."""
    rope = rope or rope_section(config)
    return read_rotary(config, rope, head_size(config), theta=theta).options


def windows(config: Options, num_windowed_from: int = 0) -> dict[str, Any]:
    """`layer_types` say which layers have the window; without them those from a number on have."""
    if "sliding_window" not in config:
        return {}
    layers = range(num_layers(config))
    kinds = config.words("layer_types") or [
        "sliding_attention" if layer >= num_windowed_from else "full_attention" for layer in layers
    ]
    if len(kinds) != len(layers):
        config.refuse("layer_types", f"must hold {len(layers)} names")
    if unknown := sorted({*kinds} - {"sliding_attention", "full_attention"}):
        config.refuse("layer_types", f"are not supported: {', '.join(unknown)}")
    window = min(config.integer("sliding_window"), config.integer("max_position_embeddings"))
    full = tuple(layer for layer, kind in enumerate(kinds) if kind == "full_attention")
    return {"window": window, "imported": {"layers_without_window": full}}


def without_windows(config: Options) -> None:
    """Refuse layers with a window in a model without one."""
    config.use("sliding_window")
    if {*config.words("layer_types")} - {"full_attention"}:
        config.refuse("layer_types", "needs use_sliding_window")


def table(options: Options, config: LlamaConfig) -> Table:
    """Return the tensor names of Llama, which Mistral, Qwen and SmolLM use too."""
    return Table(NAMES | NORMS, needless=NEEDLESS, prefix="model.")


NORMS = {
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.post_attention_layernorm",
}
NAMES = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "layers.*.attention.query": "model.layers.*.self_attn.q_proj",
    "layers.*.attention.key": "model.layers.*.self_attn.k_proj",
    "layers.*.attention.value": "model.layers.*.self_attn.v_proj",
    "layers.*.attention.output": "model.layers.*.self_attn.o_proj",
    "layers.*.attention.query_norm": "model.layers.*.self_attn.q_norm",
    "layers.*.attention.key_norm": "model.layers.*.self_attn.k_norm",
    "layers.*.feed_forward.gate": "model.layers.*.mlp.gate_proj",
    "layers.*.feed_forward.up": "model.layers.*.mlp.up_proj",
    "layers.*.feed_forward.down": "model.layers.*.mlp.down_proj",
}
LLAMA = LanguageFamily(configure_llama, table)


def configure_mistral(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    return joined(sizes(config), rotary(config), windows(config))


MISTRAL = LanguageFamily(configure_mistral, table)


def configure_qwen2(config: Options) -> dict[str, Any]:
    return joined(_qwen_sizes(config), {"imported": {"attention_bias": "qkv"}})


def configure_qwen3(config: Options) -> dict[str, Any]:
    config.default_to(head_dim=128)
    has_bias = config.flag("attention_bias", False)
    imported = {"attention_bias": "all" if has_bias else "none", "qk_norm": True}
    return joined(_qwen_sizes(config), {"imported": imported})


def _qwen_sizes(config: Options) -> dict[str, Any]:
    config.default_to(sliding_window=4096)
    found = joined(sizes(config), rotary(config))
    if not config.flag("use_sliding_window", False):
        config.use("max_window_layers")
        without_windows(config)
        return found
    return joined(found, windows(config, config.integer("max_window_layers", 28)))


QWEN2 = LanguageFamily(configure_qwen2, table)
QWEN3 = LanguageFamily(configure_qwen3, table)


def configure_smollm3(config: Options) -> dict[str, Any]:
    rotating = _rotating(config)
    found = joined(sizes(config, is_tied=True), rotary(config, theta=2_000_000.0))
    if config.flag("use_sliding_window", False):
        kinds = ("sliding_attention", "full_attention")
        config.default_to(layer_types=[kinds[rotates > 0] for rotates in rotating])
        found = joined(found, windows(config))
    else:
        without_windows(config)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "ffn_bias": config.flag("mlp_bias", False),
        "layers_without_rotation": tuple(
            layer for layer, rotates in enumerate(rotating) if not rotates
        ),
    }
    return joined(found, {"imported": imported})


def _rotating(config: Options) -> tuple[int, ...]:
    """`no_rope_layers` holds a 1 for each layer that does rotate."""
    interval = max(config.integer("no_rope_layer_interval", 4), 1)
    layers = range(num_layers(config))
    usual = tuple(int((layer + 1) % interval != 0) for layer in layers)
    flags = config.integers("no_rope_layers") or usual
    if len(flags) != len(usual):
        config.refuse("no_rope_layers", f"must hold {len(usual)} numbers")
    return flags


SMOLLM3 = LanguageFamily(configure_smollm3, table)


def configure_phi3(config: Options) -> dict[str, Any]:
    """Return our options of Phi-3, whose early files call LongRoPE "su" or "yarn"."""
    config.default_to(rms_norm_eps=1e-5)
    rope = rope_section(config)
    for name in ("type", "rope_type"):
        if rope.values.get(name) == "yarn":
            rope.values[name] = "longrope"
    return joined(sizes(config), rotary(config, rope=rope), windows(config))


PHI3_NAMES: Names = {
    **NAMES,
    **NORMS,
    QUERY_KEY_VALUE: "model.layers.*.self_attn.qkv_proj",
    ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "model.layers.*.mlp.gate_up_proj",
}


def phi3_table(options: Options, config: LlamaConfig) -> Table:
    return Table(PHI3_NAMES, needless=NEEDLESS, prefix="model.")


PHI3 = LanguageFamily(configure_phi3, phi3_table)


SANDWICH = {
    "layers.*.attention_norm": "model.layers.*.input_layernorm",
    "layers.*.attention_output_norm": "model.layers.*.post_attention_layernorm",
    "layers.*.feed_forward_norm": "model.layers.*.pre_feedforward_layernorm",
    "layers.*.feed_forward_output_norm": "model.layers.*.post_feedforward_layernorm",
}


def configure_gemma(config: Options) -> dict[str, Any]:
    """Its first files say "gelu" and mean the tanh approximation."""
    config.only("hidden_act", "gelu", "gelu_pytorch_tanh")
    return joined(_sizes(config), rotary(config), {"activation": "gelu_tanh"})


def configure_gemma2(config: Options) -> dict[str, Any]:
    config.default_to(attn_logit_softcapping=50.0, final_logit_softcapping=30.0)
    return joined(_sandwich(config, pattern=2), rotary(config))


def configure_gemma3(config: Options) -> dict[str, Any]:
    pattern = max(config.integer("sliding_window_pattern", 6), 1)
    config.only("attn_logit_softcapping")  # it has none in transformers, whatever stands there
    sizes = _sandwich(config, pattern)
    full, local = _ropes(config)
    size = head_size(config)
    imported = {
        "window_frequencies": read_rotary(config, local, size).frequencies,
        "qk_norm": True,
    }
    rotary = read_rotary(config, full, size, theta=1_000_000.0)
    return joined(sizes, rotary.options, {"imported": imported})


def _ropes(config: Options) -> tuple[Options, Options]:
    """Return the rotary embeddings of layers with full attention, and of layers with a window."""
    if "rope_parameters" in config:
        both = config.section("rope_parameters")
        return both.section("full_attention"), both.section("sliding_attention")
    theta = config.number("rope_local_base_freq", 10000.0)
    local = Options(config.file, {"rope_theta": theta}, config.problems)
    return config.section("rope_scaling"), local


def _sizes(config: Options, act: str = "hidden_act") -> dict[str, Any]:
    config.only("use_bidirectional_attention", False)
    config.default_to(head_dim=256)
    has_bias = config.flag("attention_bias", False)
    imported = {
        "attention_bias": "all" if has_bias else "none",
        "embedding_scale": math.sqrt(config.integer("hidden_size")),
    }
    return joined(sizes(config, is_tied=True, act=act), {"imported": imported})


def _sandwich(config: Options, pattern: int) -> dict[str, Any]:
    """Every `pattern`th layer sees everything."""
    config.default_to(hidden_activation="gelu_pytorch_tanh", sliding_window=4096)
    layers = range(num_layers(config))
    kinds = ("full_attention", "sliding_attention")
    config.default_to(layer_types=[kinds[(i + 1) % pattern > 0] for i in layers])
    config.positive("query_pre_attn_scalar", 256)
    caps = {"attention_cap": "attn_logit_softcapping", "logit_cap": "final_logit_softcapping"}
    limits = {ours: config.number(theirs) for ours, theirs in caps.items() if theirs in config}
    sizes = _sizes(config, act="hidden_activation")
    return joined(sizes, windows(config), {"imported": {**limits, "sandwich_norms": True}})


def gemma_table(options: Options, config: LlamaConfig) -> Table:
    norms = SANDWICH if config.imported.sandwich_norms else NORMS
    scaled = ["norm", *norms, *(f"layers.*.attention.{part}_norm" for part in ("query", "key"))]
    changes: dict[str, Change] = dict.fromkeys(scaled, _plus_one)
    if config.imported.sandwich_norms:
        scale = times(math.sqrt(config.head_size / options.positive("query_pre_attn_scalar", 256)))
        if config.imported.qk_norm:
            changes["layers.*.attention.query_norm"] = lambda weight: scale(_plus_one(weight))
        else:
            changes["layers.*.attention.query"] = scale
    return Table(NAMES | norms, changes, NEEDLESS, prefix="model.")


def _plus_one(weight: Array) -> Array:
    return weight + np.float32(1)


GEMMA = LanguageFamily(configure_gemma, gemma_table)
GEMMA2 = LanguageFamily(configure_gemma2, gemma_table)
GEMMA3 = LanguageFamily(configure_gemma3, gemma_table)
