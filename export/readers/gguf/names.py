"""Tensors of GGUF files under the names, and in the layout, that Hugging Face folders have.

gguf's constants.py (TENSOR_NAMES) and llama.cpp's convert_hf_to_gguf.py say what was done to them.
"""

import re
from collections.abc import Callable, Mapping

from export.readers.gguf.tensors import Tensor
from models.arrays import Array
from models.storage.stored import Stored

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
SANDWICH = {  # of layers with norms on both sides (Gemma 2 and 3)
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
SIDE_BY_SIDE = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}  # Phi-3
ROPE_FREQUENCIES = "rope_freqs.weight"
ROPE_SHORT, ROPE_LONG = "rope_factors_short.weight", "rope_factors_long.weight"
ROPE_TABLES = {ROPE_FREQUENCIES, ROPE_SHORT, ROPE_LONG}  # part of the configuration

_IN_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_IN_MODEL = re.compile(r"(\w+)\.(weight|bias)")
_FOREIGN_NAME = re.compile(r"model\.layers\.(\d+)\.([\w.]+)\.(weight|bias)|([\w.]+)\.(weight|bias)")


def num_blocks(tensors: Mapping[str, Tensor]) -> int:
    """How many layers have tensors."""
    return len({found[1] for name in tensors if (found := _IN_BLOCK.fullmatch(name))})


class Names:
    """Of one family: `of_block` are those that it calls otherwise than Llama."""

    def __init__(self, of_block: Mapping[str, str]) -> None:
        self._foreign = BLOCK | dict(of_block)
        self._own = {theirs: ours for ours, theirs in (MODEL | self._foreign).items()}

    def foreign(self, name: str) -> str:
        """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
        if (found := _IN_BLOCK.fullmatch(name)) and found[2] in self._foreign:
            return f"model.layers.{found[1]}.{self._foreign[found[2]]}.{found[3]}"
        if (found := _IN_MODEL.fullmatch(name)) and found[1] in MODEL:
            return f"{MODEL[found[1]]}.{found[2]}"
        return name

    def in_own(self, message: str) -> str:
        """A message about tensors under Hugging Face's names, under those of the file."""
        return _FOREIGN_NAME.sub(self._own_name, message)

    def _own_name(self, found: re.Match[str]) -> str:
        block, in_block, kind, in_model, other_kind = found.groups()
        own = self._own.get(in_block or in_model)
        if own is None:
            return found[0]
        return f"blk.{block}.{own}.{kind}" if in_block else f"{own}.{other_kind}"


def stored(
    tensors: Mapping[str, Tensor],
    names: Names,
    permuted_heads: Mapping[str, int],
    *,
    norms_have_one: bool,
) -> dict[str, Stored]:
    """By Hugging Face's names; tensors without one keep theirs.

    permuted_heads: how many heads those parts of a block have whose rows were reordered.
    norms_have_one: whether a 1 was added to the weights of norms (Gemma).
    """
    found = {}
    for name, tensor in tensors.items():
        if name not in ROPE_TABLES:
            part = _part(name)
            read: Callable[[], Array] = tensor.read
            if part in permuted_heads:
                read = _Unpermuted(tensor, permuted_heads[part])
            elif norms_have_one and part.endswith("norm"):
                read = _LessOne(tensor)
            found[names.foreign(name)] = Stored("F32", tensor.shape, read)
    return found


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
