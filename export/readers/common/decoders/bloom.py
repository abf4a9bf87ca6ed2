"""BLOOM (BigScience 2022) and Falcon (Almazrouei et al. 2023).

BLOOM has linear biases of scores (Press et al. 2022) and a norm of the embedding. As softmax is the
same if all scores of a query are lowered alike, the bias may grow with the key's position in place
of falling with its distance. Falcon has such biases or rotation, one key and value for all heads or
for groups of heads, and mostly parallel sublayers, with one norm or two.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from export.readers.common.decoders.family import (
    IGNORED,
    QUERY_KEY_VALUE,
    LanguageFamily,
    rename,
    sizes,
)
from export.readers.common.decoders.heads import split_query_key_value
from export.readers.common.options import MOST_POSITIONS, Options, merge_options
from export.readers.common.rope import read_rotary, rope_section
from export.readers.common.weights import Computed, Names, Shape, Table, TensorReference
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.layers.position_tables import linear_slopes
from models.safetensors import Array

CONTEXT_LENGTH = 2048
LAYER = "transformer.h.*"
NAMES: Names = {
    "embedding": "transformer.word_embeddings",
    "embedding_norm": "transformer.word_embeddings_layernorm",
    "norm": "transformer.ln_f",
    "output": "lm_head",
    "layers.*.attention_norm": f"{LAYER}.input_layernorm",
    "layers.*.feed_forward_norm": f"{LAYER}.post_attention_layernorm",
    "layers.*.attention.output": f"{LAYER}.self_attention.dense",
    "layers.*.feed_forward.up": f"{LAYER}.mlp.dense_h_to_4h",
    "layers.*.feed_forward.down": f"{LAYER}.mlp.dense_4h_to_h",
}


def configure_bloom(config: Options) -> dict[str, Any]:
    config.only("slow_but_exact", False)  # it leaves biases out
    config.use("attention_softmax_in_fp32", "bias_dropout_fusion", "masked_softmax_fusion")
    config.use("offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id")
    rename(config, n_layer="num_hidden_layers", n_head="num_attention_heads")
    more = {
        "activation": "gelu_tanh",
        "parallel_residual": False,
        "imported": {
            "position_biases": True,
            "embedding_norm": True,
            "residual_after_norm": config.flag("apply_residual_connection_post_layernorm", False),
        },
    }
    return merge_options(_sizes(config), more)


def _sizes(config: Options) -> dict[str, Any]:
    rename(config, n_embed="hidden_size", layer_norm_epsilon="layer_norm_eps")
    config.integer("max_position_embeddings", at_most=MOST_POSITIONS)
    return {"architecture": "gpt-neox", **sizes(config, act="gelu", width=4, is_tied=True)}


def bloom_table(options: Options, config: GPTNeoXConfig) -> Table:
    names = {**_names(config), "position_biases.weight": Computed(_biases)}
    return Table(names, prefix="transformer.")


def _names(config: GPTNeoXConfig) -> Names:
    group = config.num_heads // config.kv_heads
    fused = f"{LAYER}.self_attention.query_key_value"
    return {
        **NAMES,
        QUERY_KEY_VALUE: TensorReference(
            fused, change=split_query_key_value(config.kv_heads, group)
        ),
    }


def _biases(shape: Shape) -> Array:
    num_positions, num_heads = shape
    slopes = np.array(linear_slopes(num_heads), np.float32)
    return np.outer(np.arange(num_positions, dtype=np.float32), slopes)


def configure_falcon(config: Options) -> dict[str, Any]:
    is_new = config.flag("new_decoder_architecture", False)
    config.only("apply_residual_connection_post_layernorm", False)
    config.only("num_ln_in_parallel_attn", *((1, 2) if is_new else (1,)))
    if is_new:
        config.only("parallel_attn", True)
    rename(config, ffn_hidden_size="intermediate_size", activation="hidden_act")
    values, bias = _sizes(config), config.flag("bias", False)
    num_heads, has_one = values["num_heads"], config.flag("multi_query", True)
    groups = config.integer("num_kv_heads", num_heads)
    more = {
        "num_kv_heads": (num_kv_heads := groups if is_new else 1 if has_one else num_heads),
        "parallel_residual": config.flag("parallel_attn", True),
        "imported": {"attention_bias": bias, "ffn_bias": bias},
    }
    rotary = read_rotary(config, rope_section(config), values["d_model"] // max(num_heads, 1))
    is_linear = config.flag("alibi", False)
    if is_linear and num_kv_heads != num_heads:
        config.refuse("alibi", "needs a key for each head")
    position_biases = {"imported": {"position_biases": True}}
    return merge_options(values, more, position_biases if is_linear else rotary.options)


ONE_NORM = {"layers.*.feed_forward_norm": f"{LAYER}.input_layernorm"}
TWO_NORMS = {
    "layers.*.attention_norm": f"{LAYER}.ln_attn",
    "layers.*.feed_forward_norm": f"{LAYER}.ln_mlp",
}


def falcon_table(options: Options, config: GPTNeoXConfig) -> Table:
    names = {
        **_names(config),
        "position_biases.weight": Computed(_rounded_biases(config.head_size)),
    }
    if config.parallel_residual:
        is_new = options.flag("new_decoder_architecture", False)
        has_two = options.integer("num_ln_in_parallel_attn", 1 + is_new) == 2
        names |= TWO_NORMS if has_two else ONE_NORM
    return Table(names, ignored=IGNORED, prefix="transformer.")


def _rounded_biases(head_size: int) -> Callable[[Shape], Array]:
    """Falcon computes biases in bfloat16, from rounded positions and slopes, and scales them with
    the scores.
    """

    def make(shape: Shape) -> Array:
        positions = _round_to_bfloat16(np.arange(shape[0]))
        slopes = _round_to_bfloat16(np.array(linear_slopes(shape[1])))
        return _round_to_bfloat16(np.outer(positions, slopes)) * np.float32(
            1 / math.sqrt(head_size)
        )

    return make


def _round_to_bfloat16(x: Array) -> Array:
    return x.astype(np.float32).astype("bfloat16").astype(np.float32)


FAMILIES = {
    "bloom": LanguageFamily(configure_bloom, bloom_table, CONTEXT_LENGTH),
    "falcon": LanguageFamily(configure_falcon, falcon_table, CONTEXT_LENGTH),
}
