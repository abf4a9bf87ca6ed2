"""Holds fairseq's names of a Transformer's two stacks, which BART's family has after it."""

from export.readers.common.shapes import STACKS

_LAYER = {
    "self_attention.query": "self_attn.q_proj",
    "self_attention.key": "self_attn.k_proj",
    "self_attention.value": "self_attn.v_proj",
    "self_attention.output": "self_attn.out_proj",
    "self_attention_norm": "self_attn_layer_norm",
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.key": "encoder_attn.k_proj",
    "cross_attention.value": "encoder_attn.v_proj",
    "cross_attention.output": "encoder_attn.out_proj",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward.up": "fc1",
    "feed_forward.down": "fc2",
    "feed_forward_norm": "final_layer_norm",
}


def stack_names(before: str = "") -> dict[str, str]:
    """Give theirs by ours, of both stacks; `before` is what all of theirs begin with."""
    names = {f"layers.*.{ours}": f"layers.*.{theirs}" for ours, theirs in _LAYER.items()}
    names |= {"norm": "layer_norm", "embedding_norm": "layernorm_embedding"}
    return {
        f"{stack}.{ours}": f"{before}{stack}.{theirs}"
        for stack in STACKS
        for ours, theirs in names.items()
    }
