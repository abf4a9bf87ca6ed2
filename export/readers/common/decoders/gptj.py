"""GPT-J (Wang and Komatsuzaki 2021) and CodeGen (Nijkamp et al. 2022).

GPT-NeoX models without biases of attention, whose sublayers share one norm and whose output has a
bias. Neighbours are rotated, in the first numbers of a head.
"""

from typing import Any

import numpy as np

from export.readers.common.decoders.family import QUERY_KEY_VALUE, LanguageFamily
from export.readers.common.decoders.gpt2 import LAYER, configure_gpt2
from export.readers.common.decoders.gpt2 import NAMES as GPT2_NAMES
from export.readers.common.decoders.heads import deinterleave_queries_and_keys
from export.readers.common.options import Options
from export.readers.common.rope import LARGEST_HEAD
from export.readers.common.weights import Names, Table, TensorReference
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.safetensors import Array

CODEGEN_PARTS = 4  # that queries, values and keys lie in, for as many processors
NAMES: Names = {
    **GPT2_NAMES,
    "layers.*.feed_forward_norm": f"{LAYER}.ln_1",
    "layers.*.attention.query": f"{LAYER}.attn.q_proj",
    "layers.*.attention.key": f"{LAYER}.attn.k_proj",
    "layers.*.attention.value": f"{LAYER}.attn.v_proj",
    "layers.*.attention.output": f"{LAYER}.attn.out_proj",
    "layers.*.feed_forward.up": f"{LAYER}.mlp.fc_in",
    "layers.*.feed_forward.down": f"{LAYER}.mlp.fc_out",
}
IGNORED = (r".*\.attn\.(bias|masked_bias|causal_mask|embed_positions)",)


def configure_gptj(config: Options) -> dict[str, Any]:
    config.only("tie_word_embeddings", False)
    config.only("rotary", True)
    config.only("scale_attn_weights", True)
    values = {**configure_gpt2(config), "architecture": "gpt-neox", "tied_embeddings": False}
    head_size = values["d_model"] // max(values["num_heads"], 1)
    size = config.integer("rotary_dim", 64, at_most=min(head_size, LARGEST_HEAD))
    if size % 2 or not size:
        config.refuse("rotary_dim", "must be a number of pairs")
    frequencies = tuple(10000.0 ** (-i / size) for i in range(0, size, 2))
    imported = {"attention_bias": False, "output_bias": True, "rotary_frequencies": frequencies}
    return {**values, "imported": imported}


def gptj_table(options: Options, config: GPTNeoXConfig) -> Table:
    return Table(NAMES, deinterleave_queries_and_keys(config), IGNORED, prefix="transformer.")


def configure_codegen(config: Options) -> dict[str, Any]:
    if config.integer("n_head") % CODEGEN_PARTS:
        config.refuse("n_head", f"must be a multiple of {CODEGEN_PARTS}")
    return configure_gptj(config)


def codegen_table(options: Options, config: GPTNeoXConfig) -> Table:
    table = gptj_table(options, config)
    fused = TensorReference(f"{LAYER}.attn.qkv_proj", change=_parts_of_codegen)
    return Table({**NAMES, QUERY_KEY_VALUE: fused}, table.changes, IGNORED, table.prefix)


def _parts_of_codegen(joined: Array) -> Array:
    """They lie as [parts; query, value and key; rows of a part, ...]."""
    query, value, key = joined.reshape(CODEGEN_PARTS, 3, -1, *joined.shape[1:]).swapaxes(0, 1)
    return np.stack([query, key, value]).reshape(joined.shape)


FAMILIES = {
    "codegen": LanguageFamily(configure_codegen, codegen_table),
    "gptj": LanguageFamily(configure_gptj, gptj_table),
}
