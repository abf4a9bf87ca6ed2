"""The architectures of GGUF files: how their keys and tensors are called, and what they compute
otherwise than Llama's. One that is new here is an entry in `ARCHITECTURES`, beside the Hugging Face
family that reads it (`export.readers.common.decoders`).

Keys are those of ggml's docs/gguf.md, tensors those of llama.cpp's convert_hf_to_gguf.py.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from export.readers.common.decoders.family import QUERY_KEY_VALUE
from export.readers.common.options import Options
from export.readers.common.weights import Change, Names, TensorReference
from models.architectures.llama.config import LlamaConfig
from models.safetensors import Array


def _nothing(*_: Any) -> dict[Any, Any]:
    return {}


@dataclass(frozen=True)
class Architecture:
    """model_type: the name at Hugging Face, if it differs.
    values: options of `config.json` that a file does not say.
    keys: what its files say, beside what those of all architectures do: the keys, without the
        architecture's name, with the names of options.
    also: options by other names than Llama's, with Llama's names.
    derived: returns options that follow from others, and from which tensors there are; None is a
        null of `config.json`.
    norm: the key of what is added to a variance.
    names: of tensors that Llama does not have, or names otherwise.
    changed: returns those that are written in another way, from all options and our configuration.
    wide_blocks: the number of layers of the one model whose scores are scaled by the size of the
        whole vector and not of a head (Gemma's 27B), as in llama.cpp.
    """

    model_type: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    also: Mapping[str, str] = field(default_factory=dict)
    derived: Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]] = _nothing
    norm: str = "layer_norm_rms_epsilon"
    names: Names = field(default_factory=dict)
    changed: Callable[[Options, Any], Names] = _nothing
    wide_blocks: int | None = None

    @property
    def is_permuted(self) -> bool:
        """Return whether rows of queries and keys are in the order of llama.cpp's rotation."""
        return self.changed is undo_permutation


NAMES: Names = {
    "embedding": "token_embd",
    "embedding_norm": "token_embd_norm",
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
    "layers.*.feed_forward.router": "blk.*.ffn_gate_inp",
    "layers.*.feed_forward.gate": "blk.*.ffn_gate",
    "layers.*.feed_forward.up": "blk.*.ffn_up",
    "layers.*.feed_forward.down": "blk.*.ffn_down",
}
FUSED = "blk.0.attn_qkv.weight"  # a file that has it has queries, keys and values in one tensor
FUSED_NAMES: Names = {QUERY_KEY_VALUE: "blk.*.attn_qkv"}
SANDWICH = {  # of layers with norms on both sides (Gemma 2 and 3)
    "layers.*.attention_output_norm": "blk.*.post_attention_norm",
    "layers.*.feed_forward_output_norm": "blk.*.post_ffw_norm",
}
SIDE_BY_SIDE: Names = {("layers.*.feed_forward.gate", "layers.*.feed_forward.up"): "blk.*.ffn_up"}
ONE_NORM: Names = {"layers.*.feed_forward_norm": "blk.*.attn_norm"}  # for both sublayers
ONE_OR_TWO: Names = {
    "layers.*.feed_forward_norm": TensorReference(("blk.*.ffn_norm", "blk.*.attn_norm"))
}
OF_FALCON: Names = {
    **ONE_NORM,
    "layers.*.attention_norm": TensorReference(("blk.*.attn_norm_2", "blk.*.attn_norm")),
}
OF_MAMBA: Names = {
    "layers.*.norm": "blk.*.attn_norm",
    "layers.*.mixer.D": "blk.*.ssm_d",
    "layers.*.mixer.conv.bias": "blk.*.ssm_conv1d.bias",
    "layers.*.mixer.output": "blk.*.ssm_out",
}
MAMBA: Names = {
    **OF_MAMBA,
    tuple(f"layers.*.mixer.{part}" for part in "xz"): "blk.*.ssm_in",
    tuple(f"layers.*.mixer.{part}" for part in ("low", "B", "C")): "blk.*.ssm_x",
    "layers.*.mixer.dt": "blk.*.ssm_dt",
}
MAMBA2: Names = {
    **OF_MAMBA,
    tuple(f"layers.*.mixer.{part}" for part in ("z", "x", "B", "C", "dt")): "blk.*.ssm_in",
    "layers.*.mixer.dt_bias": "blk.*.ssm_dt.bias",
}


def undo_permutation(options: Options, config: Any) -> Names:
    """Order queries and keys for Hugging Face's rotation, which turns the first half of a head
    against the second; llama.cpp's turns neighbours (LlamaModel.permute).
    """
    heads = {"query": config.num_heads, "key": config.num_kv_heads}
    names = {f"layers.*.attention.{part}": number for part, number in heads.items()}
    return {
        ours: TensorReference(str(NAMES[ours]), change=_split_pairs(heads), moves_rows=True)
        for ours, heads in names.items()
    }


def _split_pairs(num_heads: int) -> Change:
    def change(weight: Array) -> Array:
        """[heads * head_dim, ...]"""
        pairs = weight.reshape(num_heads, -1, 2, *weight.shape[1:])
        return pairs.swapaxes(1, 2).reshape(weight.shape)

    return change


def experts(config: Any) -> Names:
    """Name the experts of a mixture, which a container takes apart."""
    mixture = config.imported.experts if isinstance(config, LlamaConfig) else None
    return {
        f"layers.*.feed_forward.experts.{number}.{part}": f"blk.*.ffn_{part}_exps.{number}"
        for number in range(mixture.num_experts if mixture else 0)
        for part in ("gate", "up", "down")
    }


def norms_less_one(options: Options, config: Any) -> Names:
    """Gemma's norms scale by 1 + weight; the file holds the sum."""
    both = {**NAMES, **SANDWICH}
    norms = {ours: str(name) for ours, name in both.items() if ours.endswith("norm")}
    return {
        ours: TensorReference(name, change=lambda weight: weight - 1)
        for ours, name in norms.items()
    }


def first_positions(options: Options, config: Any) -> Names:
    """GPT-2's table of positions, which may be longer than what is read."""
    shape = (options.integer("n_positions"), config.d_model)
    return {
        "positions": TensorReference(
            "position_embd", shape=shape, change=lambda table: table[: config.context_length]
        )
    }


def as_mamba(options: Options, config: Any) -> Names:
    """A convolution has a row for a channel; decays are no logarithms, and negative."""
    shape = (config.inner_dim, config.conv_kernel_size)
    return {
        "layers.*.mixer.A_log": TensorReference("blk.*.ssm_a", change=lambda a: np.log(-a)),
        "layers.*.mixer.conv.weight": _convolution(shape),
    }


def as_mamba2(options: Options, config: Any) -> Names:
    """Beside that, numbers of heads are columns, and the norm has a row for a group."""
    column, groups = (config.num_heads, 1), config.num_groups
    inner = config.num_heads * config.head_dim
    rows = (groups, inner // groups)
    channels = inner + 2 * groups * config.state_dim
    return {
        "layers.*.mixer.A_log": TensorReference(
            "blk.*.ssm_a", shape=column, change=lambda a: np.log(-a[:, 0])
        ),
        "layers.*.mixer.D": TensorReference("blk.*.ssm_d", shape=column, change=np.ravel),
        "layers.*.mixer.conv.weight": _convolution((channels, config.conv_kernel_size)),
        "layers.*.mixer.norm.weight": TensorReference(
            "blk.*.ssm_norm.weight", shape=rows, change=np.ravel
        ),
    }


def _convolution(shape: tuple[int, int]) -> TensorReference:
    return TensorReference(
        "blk.*.ssm_conv1d.weight", shape=shape, change=lambda weight: weight[:, None]
    )


def present(**options: str) -> Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]]:
    """Set each option to whether the file has a tensor."""
    return lambda values, tensors: {option: name in tensors for option, name in options.items()}


def sublayers_of_stablelm(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """Parallel sublayers have no second norm; what the file says of them is not always true."""
    return {
        "use_parallel_residual": "blk.0.ffn_norm.weight" not in tensors,
        "use_qkv_bias": "blk.0.attn_q.bias" in tensors,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in tensors,
    }


def groups_of_falcon(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """Falcon's first form is its second with one group of heads."""
    return {
        "new_decoder_architecture": True,
        "num_kv_heads": values["num_key_value_heads"],
        "num_ln_in_parallel_attn": 2 if "blk.0.attn_norm_2.weight" in tensors else 1,
    }


def windows_of_exaone(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """A file that does not say a window is of a model without one."""
    return {"sliding_window": values["sliding_window"]}


def without_truncation(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """YaRN's borders lie between pairs in gpt-oss, which its files do not say."""
    scaling = values["rope_scaling"]
    return {"rope_scaling": {**scaling, "truncate": False}} if scaling else {}


def mixers(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """Return the options of Mamba and Mamba-2 that follow from others."""
    names = ("intermediate_size", "num_heads", "hidden_size")
    sizes = (values.get(name) for name in names)
    inner, num_heads, width = (max(size, 1) if type(size) is int else 1 for size in sizes)
    return {
        "head_dim": inner // num_heads,
        "expand": inner // width,
        "use_bias": "blk.0.ssm_in.bias" in tensors,
        "use_conv_bias": "blk.0.ssm_conv1d.bias" in tensors,
    }


def rotations_of_olmo(values: Mapping[str, Any], tensors: Collection[str]) -> dict[str, Any]:
    """OLMo 3 is OLMo 2 with windows, whose rotation is never scaled. Its files hold YaRN's whole
    factor of scores, where those of other architectures hold what is left beside the usual one.
    """
    if values["sliding_window"] is None:
        return {}
    plain = {"rope_theta": values["rope_theta"]}
    scaling = dict(values["rope_scaling"] or {})
    if scaling.get("rope_type") == "yarn" and "attention_factor" in scaling:
        scaling["attention_factor"] /= 1 + 0.1 * math.log(max(scaling["factor"], 1.0))
    both = {"full_attention": plain | scaling, "sliding_attention": plain}
    return {"model_type": "olmo3", "rope_parameters": both, "rope_scaling": None}


GELU_TANH = {"hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}
LAYER_NORM = "layer_norm_epsilon"
OF_GPT2 = {
    "activation_function": "hidden_act",
    "layer_norm_epsilon": "rms_norm_eps",
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
SSM_KEYS = {
    "ssm.conv_kernel": "conv_kernel",
    "ssm.inner_size": "intermediate_size",
    "ssm.state_size": "state_size",
}
EXPERT_KEYS = {"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"}
MULTIPLIERS = {  # of Granite
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "logit_scale": "logits_scaling",
    "residual_scale": "residual_multiplier",
}
ARCHITECTURES = {
    "arcee": Architecture(values={"hidden_act": "relu2"}, changed=undo_permutation),
    "bloom": Architecture(also={"layer_norm_epsilon": "rms_norm_eps"}, norm=LAYER_NORM),
    "cohere2": Architecture(
        keys={"logit_scale": "logit_scale"},
        also={"layer_norm_eps": "rms_norm_eps"},
        norm=LAYER_NORM,
        names=ONE_NORM,
    ),
    "command-r": Architecture(
        "cohere",
        keys={"logit_scale": "logit_scale"},
        also={"layer_norm_eps": "rms_norm_eps"},
        derived=present(use_qk_norm="blk.0.attn_q_norm.weight"),
        norm=LAYER_NORM,
        names=ONE_NORM,
    ),
    "ernie4_5": Architecture(),
    "exaone4": Architecture(derived=windows_of_exaone, names=SANDWICH),
    "falcon": Architecture(
        values={"hidden_act": "gelu"},
        also={"layer_norm_epsilon": "rms_norm_eps"},
        derived=groups_of_falcon,
        norm=LAYER_NORM,
        names=OF_FALCON,
    ),
    "gemma": Architecture(values=GELU_TANH, changed=norms_less_one),
    "gemma2": Architecture(
        values=GELU_TANH, names=SANDWICH, changed=norms_less_one, wide_blocks=46
    ),
    "gemma3": Architecture(
        "gemma3_text", GELU_TANH, names=SANDWICH, changed=norms_less_one, wide_blocks=62
    ),
    "glm4": Architecture(names={**SANDWICH, **SIDE_BY_SIDE}),
    "gpt-oss": Architecture(
        "gpt_oss",
        keys={**EXPERT_KEYS, "expert_feed_forward_length": "intermediate_size"},
        derived=without_truncation,
        names={
            "layers.*.attention.sinks": "blk.*.attn_sinks.weight",
            "layers.*.feed_forward_norm": "blk.*.post_attention_norm",
        },
    ),
    "gpt2": Architecture(
        values={"hidden_act": "gelu_new"}, also=OF_GPT2, norm=LAYER_NORM, changed=first_positions
    ),
    "gptneox": Architecture(
        "gpt_neox",
        values={"hidden_act": "gelu"},
        keys={"use_parallel_residual": "use_parallel_residual"},
        also={"layer_norm_eps": "rms_norm_eps"},
        norm=LAYER_NORM,
    ),
    "granite": Architecture(keys=MULTIPLIERS, changed=undo_permutation),
    "hunyuan-dense": Architecture("hunyuan_v1_dense"),
    "llama": Architecture(keys=EXPERT_KEYS, changed=undo_permutation),
    "mamba": Architecture(
        keys={**SSM_KEYS, "ssm.time_step_rank": "time_step_rank"},
        also={"layer_norm_epsilon": "rms_norm_eps"},
        derived=mixers,
        names=MAMBA,
        changed=as_mamba,
    ),
    "mamba2": Architecture(
        keys={**SSM_KEYS, "ssm.group_count": "n_groups", "ssm.time_step_rank": "num_heads"},
        also={"layer_norm_epsilon": "rms_norm_eps"},
        derived=mixers,
        names=MAMBA2,
        changed=as_mamba2,
    ),
    "olmo": Architecture(
        keys={"attention.clamp_kqv": "clip_qkv"}, norm=LAYER_NORM, changed=undo_permutation
    ),
    "olmo2": Architecture(derived=rotations_of_olmo, names=SANDWICH),
    "phi2": Architecture(
        "phi",
        values={"hidden_act": "gelu_new"},
        also={"layer_norm_eps": "rms_norm_eps"},
        norm=LAYER_NORM,
        names=ONE_NORM,
    ),
    "phi3": Architecture(names=SIDE_BY_SIDE),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "qwen3moe": Architecture(
        "qwen3_moe",
        values={"norm_topk_prob": True},
        keys={**EXPERT_KEYS, "expert_feed_forward_length": "moe_intermediate_size"},
    ),
    "seed_oss": Architecture(names={"layers.*.feed_forward_norm": "blk.*.post_attention_norm"}),
    "smollm3": Architecture(changed=undo_permutation),
    "stablelm": Architecture(
        keys={"use_parallel_residual": "use_parallel_residual"},
        also={"layer_norm_eps": "rms_norm_eps"},
        derived=sublayers_of_stablelm,
        norm=LAYER_NORM,
        names=ONE_OR_TWO,
    ),
    "starcoder2": Architecture(
        values={"hidden_act": "gelu_pytorch_tanh"},
        also={"norm_epsilon": "rms_norm_eps"},
        derived=present(use_bias="blk.0.attn_output.bias"),
        norm=LAYER_NORM,
    ),
}
