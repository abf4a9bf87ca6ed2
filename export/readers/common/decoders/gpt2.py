"""GPT-2 (Radford et al. 2019), whose linear layers are written transposed, [in, out]."""

import math
from typing import Any

from export.readers.common.decoders.family import (
    QUERY_KEY_VALUE,
    LanguageFamily,
    num_layers,
    special_ids,
)
from export.readers.common.options import Options
from export.readers.common.shapes import read_activation
from export.readers.common.weights import Held, Names, Table, times
from models.architectures.gpt2.config import GPT2Config

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


FAMILIES = {"gpt2": LanguageFamily(configure_gpt2, gpt2_table)}
