"""Tensors of GGUF files under the names, and in the layout, that Hugging Face folders have.

gguf's constants.py (TENSOR_NAMES) and llama.cpp's convert_hf_to_gguf.py say what was done to them.
"""

import re
from collections.abc import Mapping

from models.arrays import Array
from models.pretrained.gguf.tensors import Tensor
from models.pretrained.hugging_face.stored import Stored

MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FREQUENCIES = "rope_freqs.weight"

_IN_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_IN_MODEL = re.compile(r"(\w+)\.(weight|bias)")
_FOREIGN_NAME = re.compile(r"model\.layers\.(\d+)\.([\w.]+)\.(weight|bias)|([\w.]+)\.(weight|bias)")
_OWN_NAMES = {foreign: own for own, foreign in (MODEL | BLOCK).items()}


def num_blocks(tensors: Mapping[str, Tensor]) -> int:
    """How many layers have tensors."""
    return len({found[1] for name in tensors if (found := _IN_BLOCK.fullmatch(name))})


def stored(
    tensors: Mapping[str, Tensor], permuted_heads: Mapping[str, int], *, norms_have_one: bool
) -> dict[str, Stored]:
    """By Hugging Face's names; tensors without one keep theirs.

    permuted_heads: how many heads those parts of a block have whose rows were reordered.
    norms_have_one: whether a 1 was added to the weights of norms (Gemma).
    """
    found = {}
    for name, tensor in tensors.items():
        if name != ROPE_FREQUENCIES:
            part = _part(name)
            read = tensor.read
            if part in permuted_heads:
                read = _Unpermuted(tensor, permuted_heads[part])
            elif norms_have_one and part.endswith("norm"):
                read = _LessOne(tensor)
            found[foreign_name(name)] = Stored("F32", tensor.shape, read)
    return found


def foreign_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    if (found := _IN_BLOCK.fullmatch(name)) and found[2] in BLOCK:
        return f"model.layers.{found[1]}.{BLOCK[found[2]]}.{found[3]}"
    if (found := _IN_MODEL.fullmatch(name)) and found[1] in MODEL:
        return f"{MODEL[found[1]]}.{found[2]}"
    return name


def in_own_names(message: str) -> str:
    """A message about tensors under Hugging Face's names, under those of the file."""
    return _FOREIGN_NAME.sub(_own_name, message)


def _own_name(found: re.Match[str]) -> str:
    block, in_block, kind, in_model, other_kind = found.groups()
    own = _OWN_NAMES.get(in_block or in_model)
    if own is None:
        return found[0]
    return f"blk.{block}.{own}.{kind}" if in_block else f"{own}.{other_kind}"


def _part(name: str) -> str:
    found = _IN_BLOCK.fullmatch(name)
    return found[2] if found else name.removesuffix(".weight")


class _Unpermuted:
    """Rows in the order of Hugging Face's rotation, which turns the first half of a head against
    the second; llama.cpp's turns neighbours (LlamaModel.permute).
    """

    def __init__(self, tensor: Tensor, num_heads: int) -> None:
        self._tensor, self._num_heads = tensor, num_heads

    def __call__(self) -> Array:
        weight = self._tensor.read()  # [heads * head_dim, ...]
        pairs = weight.reshape(self._num_heads, -1, 2, *weight.shape[1:])
        return pairs.swapaxes(1, 2).reshape(weight.shape)


class _LessOne:
    """Gemma's norms scale by 1 + weight; the file holds the sum."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __call__(self) -> Array:
        return self._tensor.read() - 1
