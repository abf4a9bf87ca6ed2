"""GPT-2 (Radford et al. 2019), whose linear layers are written transposed, [in, out].

GPT-Neo (Black et al. 2021) has windows in some layers, and does not scale scores. OPT (Zhang et al.
2022) has a table of positions that begins with two that are not used; OPT-350m, whose norms come
after the sublayers, is refused.
"""

import math
from typing import Any

from export.readers.common.decoders.family import (
    QUERY_KEY_VALUE,
    LanguageFamily,
    rename,
    sizes,
)
from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.weights import ONES, ZEROS, Names, Table, TensorReference, scale_by
from models.architectures.gpt2.config import GPT2Config

LAYER = "transformer.h.*"
GPT2_IGNORED = r".*\.attn\.(bias|masked_bias)"
NAMES: Names = {
    "embedding": "transformer.wte",
    "norm": "transformer.ln_f",
    "output": "lm_head",
    "layers.*.attention_norm": f"{LAYER}.ln_1",
    "layers.*.feed_forward_norm": f"{LAYER}.ln_2",
}


def configure_gpt2(config: Options) -> dict[str, Any]:
    config.only("add_cross_attention", False)
    rename(config, n_embd="hidden_size", n_layer="num_hidden_layers", n_head="num_attention_heads")
    rename(config, n_inner="intermediate_size", activation_function="hidden_act")
    rename(config, layer_norm_epsilon="layer_norm_eps")
    config.default_to(max_position_embeddings=config.integer("n_positions"))
    return {"architecture": "gpt2", **sizes(config, act="gelu_new", width=4, is_tied=True)}


def gpt2_table(options: Options, config: GPT2Config) -> Table:
    names: Names = {
        **NAMES,
        "positions": _positions("transformer.wpe", options, config),
        QUERY_KEY_VALUE: _linear("attn.c_attn"),
        "layers.*.attention.output": _linear("attn.c_proj"),
        "layers.*.feed_forward.up": _linear("mlp.c_fc"),
        "layers.*.feed_forward.down": _linear("mlp.c_proj"),
    }
    changes = {
        f"layers.{n}.attention.query": scale_by(_scale(options, config, n))
        for n in range(config.num_layers)
    }
    return Table(names, changes, ignored=(GPT2_IGNORED,), prefix="transformer.")


def _linear(name: str) -> TensorReference:
    return TensorReference(f"{LAYER}.{name}", is_transposed=True)


def _positions(name: str, options: Options, config: GPT2Config, unused: int = 0) -> TensorReference:
    """unused: positions before the first."""
    length = options.integer("n_positions", config.context_length)
    return TensorReference(
        name,
        shape=(unused + length, config.d_model),
        change=lambda table: table[unused:][: config.context_length],
    )


def _scale(options: Options, config: GPT2Config, layer: int) -> float:
    """Scale the scores beside 1 / sqrt(head_size), which some models do without."""
    is_scaled = options.flag("scale_attn_weights", True)
    scale = 1.0 if is_scaled else math.sqrt(config.head_size)
    by_layer = options.flag("scale_attn_by_inverse_layer_idx", False)
    return scale / (layer + 1) if by_layer else scale


def configure_gpt_neo(config: Options) -> dict[str, Any]:
    rename(config, num_layers="num_hidden_layers", num_heads="num_attention_heads")
    rename(config, activation_function="hidden_act", layer_norm_epsilon="layer_norm_eps")
    values = sizes(config, act="gelu_new", width=4, is_tied=True)
    full = tuple(layer for layer, kind in enumerate(_kinds(config)) if kind == "global")
    window = min(config.integer("window_size", 256), values["context_length"])
    more = {"window": window, "imported": {"layers_without_window": full}}
    return {"architecture": "gpt2", **values, **more}


def _kinds(config: Options) -> list[str]:
    """Return the kind of attention of each layer. `attention_layers` counts before
    `attention_types`, where [[["global", "local"], 6]] is six times both.
    """
    groups = config.get("attention_types", [[["global", "local"], 12]])
    if "attention_layers" in config:
        groups = [[config.words("attention_layers"), 1]]
    try:
        kinds = [kind for group, count in groups for kind in [*group] * min(count, MOST_LAYERS)]
        if {*kinds} <= {"global", "local"} and len(kinds) == config.integer("num_hidden_layers"):
            return kinds
    except (TypeError, ValueError):
        pass
    config.refuse("attention_types", "must name global or local for each layer")
    return []


GPT_NEO_NAMES: Names = {
    **NAMES,
    **{f"layers.*.attention.{part}.bias": ZEROS for part in ("query", "key", "value")},
    "layers.*.attention.query": f"{LAYER}.attn.attention.q_proj",
    "layers.*.attention.key": f"{LAYER}.attn.attention.k_proj",
    "layers.*.attention.value": f"{LAYER}.attn.attention.v_proj",
    "layers.*.attention.output": f"{LAYER}.attn.attention.out_proj",
    "layers.*.feed_forward.up": f"{LAYER}.mlp.c_fc",
    "layers.*.feed_forward.down": f"{LAYER}.mlp.c_proj",
}


def gpt_neo_table(options: Options, config: GPT2Config) -> Table:
    names = {**GPT_NEO_NAMES, "positions": _positions("transformer.wpe", options, config)}
    changes = {"layers.*.attention.query": scale_by(math.sqrt(config.head_size))}
    ignored = r".*\.attn\.attention\.(bias|masked_bias)"
    return Table(names, changes, (ignored,), prefix="transformer.")


def configure_opt(config: Options) -> dict[str, Any]:
    config.only("do_layer_norm_before", True)
    config.only("_remove_final_layer_norm", False)
    config.use("prefix")  # which its tokenizer puts before a text
    config.only("word_embed_proj_dim", config.integer("hidden_size"))
    rename(config, ffn_dim="intermediate_size", activation_function="hidden_act")
    return {"architecture": "gpt2", **sizes(config, act="relu", epsilon=None, is_tied=True)}


OPT_LAYER = "model.decoder.layers.*"
OPT_NORMS = {
    "norm": "model.decoder.final_layer_norm",
    "layers.*.attention_norm": f"{OPT_LAYER}.self_attn_layer_norm",
    "layers.*.feed_forward_norm": f"{OPT_LAYER}.final_layer_norm",
}
OPT_LINEARS = {
    "layers.*.attention.query": f"{OPT_LAYER}.self_attn.q_proj",
    "layers.*.attention.key": f"{OPT_LAYER}.self_attn.k_proj",
    "layers.*.attention.value": f"{OPT_LAYER}.self_attn.v_proj",
    "layers.*.attention.output": f"{OPT_LAYER}.self_attn.out_proj",
    "layers.*.feed_forward.up": f"{OPT_LAYER}.fc1",
    "layers.*.feed_forward.down": f"{OPT_LAYER}.fc2",
}


def opt_table(options: Options, config: GPT2Config) -> Table:
    names: dict[Any, Any] = {**OPT_NORMS, **OPT_LINEARS}
    if not options.flag("enable_bias", True):
        names |= {f"{name}.bias": ZEROS for name in OPT_LINEARS}
    if not options.flag("layer_norm_elementwise_affine", True):
        names |= {f"{name}.bias": ZEROS for name in OPT_NORMS}
        names |= {f"{name}.weight": ONES for name in OPT_NORMS}
    names["positions"] = _positions("model.decoder.embed_positions", options, config, unused=2)
    names |= {"embedding": "model.decoder.embed_tokens", "output": "lm_head"}
    return Table(names, ignored=(r"(model\.)?decoder\.version",), prefix="model.")


FAMILIES = {
    "gpt2": LanguageFamily(configure_gpt2, gpt2_table),
    "gpt_neo": LanguageFamily(configure_gpt_neo, gpt_neo_table),
    "opt": LanguageFamily(configure_opt, opt_table),
}
