"""GGUF files of models of `transformers`, written by the package `gguf` as llama.cpp's converter
does it (convert_hf_to_gguf.py).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind
from tokenizers import pre_tokenizers
from transformers import PreTrainedModel

SPECIAL = ["<pad>", "<|im_start|>", "<|im_end|>"]
CONTROL, NORMAL = 3, 1
ARCHITECTURES = {  # where names differ
    "cohere": "command-r",
    "gemma3_text": "gemma3",
    "gpt_neox": "gptneox",
    "gpt_oss": "gpt-oss",
    "hunyuan_v1_dense": "hunyuan-dense",
    "mistral": "llama",
    "mixtral": "llama",
    "olmo3": "olmo2",
    "phi": "phi2",
    "qwen3_moe": "qwen3moe",
}
ADD = {int: "add_uint32", float: "add_float32", bool: "add_bool", str: "add_string"}
ADD |= {list: "add_array"}


def write_gguf(
    model: PreTrainedModel,
    path: Path,
    kind: Kind = Kind.F32,
    more: Mapping[str, np.ndarray] | None = None,
    without: str = "",
    **keys: Any,
) -> Path:
    """Matrices whose rows are whole blocks as `kind`, the rest in fp32.

    more: further tensors. without: the names of those that are left out, a regular expression.
    keys: set instead of what the model says, dots as double underscores; None leaves one away.
    """
    name = ARCHITECTURES.get(model.config.model_type, model.config.model_type)
    writer = gguf.GGUFWriter(path, name)
    known = {**_model_fields(model, name), **_tokenizer_fields(model.config.vocab_size)}
    known |= {key.replace("__", "."): value for key, value in keys.items()}
    for key, value in known.items():
        if value is not None:
            getattr(writer, ADD[type(value)])(key, value)
    tensors = {n: each for n, each in _tensors(model, name).items() if not re.fullmatch(without, n)}
    for tensor, array in (tensors | dict(more or {})).items():
        is_whole = array.ndim > 1 and array.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] == 0
        is_quantised = is_whole and kind is not Kind.F32
        data = gguf.quants.quantize(array, kind) if is_quantised else array
        writer.add_tensor(tensor, data, raw_dtype=kind if is_quantised else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _model_fields(model: PreTrainedModel, name: str) -> dict[str, Any]:
    config = model.config
    if name in ("mamba", "mamba2"):
        return _mamba_fields(config, name)
    if not hasattr(config, "rms_norm_eps"):
        return _layer_norm_fields(config, name)
    rope = config.rope_parameters
    rope = rope.get("full_attention", rope)  # of Gemma 3
    fields = {
        "general.name": "Tiny",
        "general.license": "mit",
        f"{name}.block_count": config.num_hidden_layers,
        f"{name}.context_length": config.max_position_embeddings,
        f"{name}.embedding_length": config.hidden_size,
        f"{name}.feed_forward_length": config.intermediate_size,
        f"{name}.attention.head_count": config.num_attention_heads,
        f"{name}.attention.head_count_kv": config.num_key_value_heads,
        f"{name}.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        f"{name}.rope.freq_base": float(rope["rope_theta"]),
        f"{name}.attention.sliding_window": getattr(config, "sliding_window", None),
    }
    if name == "glm4":
        fields["glm4.rope.dimension_count"] = int(rope["partial_rotary_factor"] * config.head_dim)
    if name == "granite":
        fields["granite.attention.scale"] = config.attention_multiplier
        fields["granite.embedding_scale"] = config.embedding_multiplier
        fields["granite.logit_scale"] = config.logits_scaling
        fields["granite.residual_scale"] = config.residual_multiplier
    if name == "hunyuan-dense":
        exponent = config.head_dim / (config.head_dim - 2)
        fields[f"{name}.rope.freq_base"] *= rope["alpha"] ** exponent
    if config.model_type in ("gpt_oss", "mixtral", "qwen3_moe"):
        fields[f"{name}.expert_count"] = config.num_local_experts
        fields[f"{name}.expert_used_count"] = config.num_experts_per_tok
    if name == "gpt-oss":
        fields["gpt-oss.expert_feed_forward_length"] = config.intermediate_size
    if name == "qwen3moe":
        fields["qwen3moe.expert_feed_forward_length"] = config.moe_intermediate_size
    if name == "exaone4" or config.model_type == "olmo3":
        pattern = [kind == "sliding_attention" for kind in config.layer_types]
        fields[f"{name}.attention.sliding_window_pattern"] = pattern
    for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
        fields[f"{name}.{cap}"] = getattr(config, cap, None)
    if (head_dim := getattr(config, "head_dim", None)) is not None:
        fields |= {f"{name}.attention.{part}_length": head_dim for part in ("key", "value")}
    if rope["rope_type"] in ("linear", "yarn"):
        fields[f"{name}.rope.scaling.type"] = rope["rope_type"]
        fields[f"{name}.rope.scaling.factor"] = rope["factor"]
    if "original_max_position_embeddings" in rope:
        original = rope["original_max_position_embeddings"]
        fields[f"{name}.rope.scaling.original_context_length"] = original
    return fields


def _layer_norm_fields(config: Any, name: str) -> dict[str, Any]:
    head_size = config.hidden_size // config.num_attention_heads
    fields = {
        f"{name}.block_count": config.num_hidden_layers,
        f"{name}.context_length": config.max_position_embeddings,
        f"{name}.embedding_length": config.hidden_size,
        f"{name}.feed_forward_length": getattr(config, "intermediate_size", 4 * config.hidden_size),
        f"{name}.attention.head_count": config.num_attention_heads,
        f"{name}.attention.head_count_kv": getattr(config, "num_key_value_heads", None),
        f"{name}.attention.layer_norm_epsilon": getattr(config, "layer_norm_eps", 1e-5),
        f"{name}.attention.sliding_window": getattr(config, "sliding_window", None),
        f"{name}.attention.clamp_kqv": getattr(config, "clip_qkv", None),
        f"{name}.logit_scale": getattr(config, "logit_scale", None),
    }
    if name == "falcon":
        fields["falcon.tensor_data_layout"] = "jploski"
        fields["falcon.attention.head_count_kv"] = _falcon_groups(config)
        fields["falcon.feed_forward_length"] = config.ffn_hidden_size
    if name in ("cohere2", "command-r"):
        fields[f"{name}.rope.freq_base"] = float(config.rope_parameters["rope_theta"])
        fields[f"{name}.rope.scaling.type"] = "none"
    if name in ("gptneox", "stablelm"):
        fields[f"{name}.use_parallel_residual"] = config.use_parallel_residual
    if name in ("gptneox", "phi2", "stablelm"):
        part = config.rope_parameters["partial_rotary_factor"]
        fields[f"{name}.rope.dimension_count"] = int(part * head_size)
    return fields


def _falcon_groups(config: Any) -> int:
    """Return the number of keys and values of a layer."""
    return int(config.num_kv_heads if config.new_decoder_architecture else 1)


def _mamba_fields(config: Any, name: str) -> dict[str, Any]:
    is_first = name == "mamba"
    return {
        f"{name}.block_count": config.num_hidden_layers,
        f"{name}.context_length": 2**20,
        f"{name}.embedding_length": config.hidden_size,
        f"{name}.feed_forward_length": 0,
        f"{name}.attention.head_count": 0,
        f"{name}.attention.layer_norm_rms_epsilon": config.layer_norm_epsilon,
        f"{name}.ssm.conv_kernel": config.conv_kernel,
        f"{name}.ssm.inner_size": config.expand * config.hidden_size,
        f"{name}.ssm.state_size": config.state_size,
        f"{name}.ssm.time_step_rank": config.time_step_rank if is_first else config.num_heads,
        f"{name}.ssm.group_count": None if is_first else config.n_groups,
        f"{name}.ssm.dt_b_c_rms": False if is_first else None,
    }


def _tokenizer_fields(vocab_size: int) -> dict[str, Any]:
    """Bytes and one pair of them; the rest of the vocabulary is filled up."""
    tokens = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "ab"]
    tokens += [f"[PAD{number}]" for number in range(len(tokens), vocab_size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if t in SPECIAL else NORMAL for t in tokens],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.chat_template": "{{ messages[0]['content'] }}",
    }


def _tensors(model: PreTrainedModel, name: str) -> dict[str, np.ndarray]:
    config = model.config
    arch = next(arch for arch, known in gguf.MODEL_ARCH_NAMES.items() if known == name)
    names = gguf.get_tensor_name_map(arch, config.num_hidden_layers)
    heads = {
        part: getattr(config, f"num_{each}_heads", 0)
        for part, each in (("q_proj", "attention"), ("k_proj", "key_value"))
    }
    found = {}
    for theirs, array in _arrays(model).items():
        part = theirs.split(".")[-2]
        if name in ("arcee", "granite", "llama", "olmo", "smollm3") and part in heads:
            halves = array.reshape(heads[part], 2, -1, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if "gemma" in name and "norm" in theirs:
            array = array + 1
        if name == "gpt2" and part in ("c_attn", "c_proj", "c_fc"):
            array = array.T
        if name == "bloom":
            theirs = theirs.removeprefix("transformer.")
        if part == "query_key_value":
            groups = _falcon_groups(config) if name == "falcon" else config.num_attention_heads
            size = config.hidden_size // config.num_attention_heads
            rows = array.reshape(groups, -1, size, *array.shape[1:])
            apart = [part.reshape(-1, *array.shape[1:]) for part in np.split(rows, [-2, -1], 1)]
            array = np.concatenate(apart)
        if name == "mamba2":
            theirs, array = _of_mamba2(theirs, array, config.n_groups)
        if name == "mamba":
            array = -np.exp(array) if theirs.endswith("A_log") else array.squeeze()
        parts = _of_gpt_oss if name == "gpt-oss" else _parts
        for each, values in parts(theirs, array).items():
            ours = names.get_name(each, try_suffixes=(".weight", ".bias"))
            assert ours is not None, each
            found[ours] = np.ascontiguousarray(values)
    rope = getattr(config, "rope_parameters", {})
    if rope.get("rope_type") == "llama3":
        found["rope_freqs.weight"] = _rope_divisors(model)
    for length in ("short", "long"):
        if factors := rope.get(f"{length}_factor"):
            found[f"rope_factors_{length}.weight"] = np.array(factors, np.float32)
    return found


def _arrays(model: PreTrainedModel) -> dict[str, np.ndarray]:
    """Norms of heads, which StableLM has one by one, are one array."""
    found: dict[str, list[np.ndarray]] = {}
    for name, parameter in model.named_parameters():
        whole = re.sub(r"\.norms\.\d+", "", name)
        found.setdefault(whole, []).append(parameter.detach().numpy())
    return {name: np.stack(each) if len(each) > 1 else each[0] for name, each in found.items()}


def _parts(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Gates of experts are tensors of their own."""
    if name.endswith("gate_up_proj") and array.ndim == 3:
        place = name.removesuffix("gate_up_proj")
        gate, up = np.split(array, 2, axis=1)
        return {f"{place}gate_proj.weight": gate, f"{place}up_proj.weight": up}
    return {f"{name}.weight" if name.endswith("down_proj") else name: array}


def _of_gpt_oss(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Gates lie between what they gate, and matrices of experts are [in, out]."""
    place, _, part = name.partition("experts.")
    if not part:
        return {f"{name}.weight" if name.endswith("sinks") else name: array}
    end = "bias" if part.endswith("bias") else "weight"
    rows = (
        {"gate": slice(0, None, 2), "up": slice(1, None, 2)}
        if "up" in part
        else {"down": slice(None)}
    )
    parts = {one: array[..., each] for one, each in rows.items()}
    return {f"{place}experts.{one}_proj.{end}": parts[one].swapaxes(1, -1) for one in parts}


def _of_mamba2(name: str, array: np.ndarray, num_groups: int) -> tuple[str, np.ndarray]:
    if name.endswith("A_log"):
        return name, -np.exp(array)[:, None]
    if name.endswith("mixer.D"):
        return name, array[:, None]
    if name.endswith("mixer.norm.weight"):
        return name, array.reshape(num_groups, -1)
    name = name.replace("dt_bias", "dt_proj.bias")
    return name, array.squeeze() if "conv1d" in name else array


def _rope_divisors(model: PreTrainedModel) -> np.ndarray:
    scaled = model.model.rotary_emb.inv_freq.numpy()
    exponents = np.arange(len(scaled), dtype=np.float32) / len(scaled)
    plain = model.config.rope_parameters["rope_theta"] ** -exponents
    return (plain / scaled).astype(np.float32)
