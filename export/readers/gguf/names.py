"""Knows what GGUF files call our weights and do to them: gguf's constants.py (TENSOR_NAMES)
and llama.cpp's convert_hf_to_gguf.py.
"""

import re
from collections.abc import Collection

from export.readers.common.language_family import QUERY_KEY_VALUE
from export.readers.common.tables import Change, Held, Names
from models.arrays import Array

NAMES = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "output": "output",
    "layers.*.attention_norm": "blk.*.attn_norm",
    "layers.*.attention.query": "blk.*.attn_q",
    "layers.*.attention.key": "blk.*.attn_k",
    "layers.*.attention.value": "blk.*.attn_v",
    "layers.*.attention.output": "blk.*.attn_output",
    "layers.*.attention.query_norm": "blk.*.attn_q_norm",
    "layers.*.attention.key_norm": "blk.*.attn_k_norm",
    "layers.*.feed_forward_norm": "blk.*.ffn_norm",
    "layers.*.feed_forward.gate": "blk.*.ffn_gate",
    "layers.*.feed_forward.up": "blk.*.ffn_up",
    "layers.*.feed_forward.down": "blk.*.ffn_down",
}
SANDWICH = {  # of layers with norms on both sides (Gemma 2 and 3)
    "layers.*.attention_output_norm": "blk.*.post_attention_norm",
    "layers.*.feed_forward_output_norm": "blk.*.post_ffw_norm",
}
SIDE_BY_SIDE: Names = {  # Phi-3
    QUERY_KEY_VALUE: "blk.*.attn_qkv",
    ("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "blk.*.ffn_up",
}
ROPE_FREQUENCIES = "rope_freqs.weight"
ROPE_SHORT, ROPE_LONG = "rope_factors_short.weight", "rope_factors_long.weight"
# part of the configuration
ROPE_TABLES = tuple(map(re.escape, (ROPE_FREQUENCIES, ROPE_SHORT, ROPE_LONG)))

_IN_BLOCK = re.compile(r"blk\.(\d+)\.\w+\.(weight|bias)")


def num_blocks(names: Collection[str]) -> int:
    """Count the layers that have tensors."""
    return len({found[1] for name in names if (found := _IN_BLOCK.fullmatch(name))})


def norms_less_one() -> Names:
    """Gemma's norms scale by 1 + weight; the file holds the sum."""
    norms = {ours: name for ours, name in (NAMES | SANDWICH).items() if ours.endswith("norm")}
    return {ours: Held(name, change=lambda weight: weight - 1) for ours, name in norms.items()}


def unpermuted(num_heads: int, num_kv_heads: int) -> Names:
    """Order queries and keys for Hugging Face's rotation, which turns the first half of a head
    against the second; llama.cpp's turns neighbours (LlamaModel.permute).
    """
    names = {"layers.*.attention.query": num_heads, "layers.*.attention.key": num_kv_heads}
    return {ours: Held(NAMES[ours], change=_apart(heads)) for ours, heads in names.items()}


def _apart(num_heads: int) -> Change:
    def change(weight: Array) -> Array:
        """[heads * head_dim, ...]"""
        pairs = weight.reshape(num_heads, -1, 2, *weight.shape[1:])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    return change
