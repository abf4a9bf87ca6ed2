"""Reads the keys of a GGUF file: a configuration of its model in Hugging Face's words, and the
conventions of its texts. Keys are those of ggml's docs/gguf.md.
"""

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from export.readers.common.byte_level import PRE_TOKENIZATIONS
from export.readers.common.chat_templates import DEFAULT, merge_templates
from export.readers.common.decoders.families import FAMILIES
from export.readers.common.options import Options
from export.readers.gguf.architectures import ARCHITECTURES
from export.readers.gguf.container import Tensor
from models.conventions import Conventions

MOST_POSITIONS = 2**20
# Tokens that llama.cpp ends generation at, wherever a vocabulary has them (src/llama-vocab.cpp).
END_TOKENS = frozenset(
    {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>"}
)
OF_HARMONY = frozenset({"<|return|>", "<|call|>"})  # where they are, <|end|> ends a channel only
# What an architecture's models do not have, with the values that say so.
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.clamp_kqv": (0,),
    "attention.key_length_swa": (),
    "attention.max_alibi_bias": (0,),
    "attention.output_scale": (0, 1),
    "attention.scale": (0,),
    "attention.shared_kv_layers": (0,),
    "attention.temperature_scale": (0,),
    "attention.value_length_swa": (),
    "embedding_scale": (0, 1),
    "expert_count": (0,),
    "expert_gating_func": (0, 1),  # softmax
    "expert_group_count": (0, 1),
    "expert_shared_count": (0,),
    "expert_weights_norm": (True,),
    "expert_weights_scale": (0, 1),
    "leading_dense_block_count": (0,),
    "logit_scale": (0, 1),
    "nextn_predict_layers": (0,),
    "residual_scale": (0, 1),
    "rope.dimension_count_swa": (),
    "rope.dimension_sections": (),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_ext_factor": (1,),
    "rope.scaling.yarn_log_multiplier": (0,),
    "ssm.dt_b_c_rms": (False,),
    "tensor_data_layout": ("jploski", "Meta AI original pth"),
    "use_parallel_residual": (False,),
}
# Keys that change nothing here, or that the tokenizer's reader takes.
WITHOUT_EFFECT = re.compile(
    r"general\.(?!sampling\.).*|(quantize|imatrix|split)\..*|tokenizer\.huggingface\.json"
    r"|[\w-]+\.(vocab_size|rope\.scaling\.finetuned)"
    r"|tokenizer\.ggml\.(model|pre|tokens|token_type(_count)?|scores|merges|add_space_prefix)"
    r"|tokenizer\.ggml\.(remove_extra_whitespaces|\w+_token_id)"
)
SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
ADDED_BEHIND = ("tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_sep_token")  # never done here
CONTROL = 3  # the token type of those that are no text


def configuration(
    name: str, metadata: Options, tensors: Mapping[str, Tensor], problems: list[str]
) -> dict[str, Any]:
    """Return the values of `config.json` for the architecture `name`. Problems are added to
    `problems`.
    """
    num_layers = metadata.integer(f"{name}.block_count")
    if num_layers != (blocks := num_blocks(tensors)):
        problems.append(f"{name}.block_count is {num_layers}, and {blocks} blocks have tensors")
    _refuse_what_differs(name, metadata)
    kind = ARCHITECTURES[name]
    values = {
        "num_hidden_layers": num_layers,
        **_sizes(name, metadata, tensors),
        **_positions(name, metadata, tensors, problems),
        **_special_ids(metadata),
        "tie_word_embeddings": _is_tied(tensors),
        "attention_bias": not tensors.keys().isdisjoint(ATTENTION_BIASES),
        "hidden_act": "silu",
        "attn_logit_softcapping": metadata.get(f"{name}.attn_logit_softcapping"),
        "final_logit_softcapping": metadata.get(f"{name}.final_logit_softcapping"),
    }
    values |= {**_head_sizes(name, metadata, values), **kind.values}
    values |= {word: metadata.get(f"{name}.{key}") for key, word in kind.keys.items()}
    values |= {word: values[llamas] for word, llamas in kind.also.items()}
    said = {option: value for option, value in values.items() if value is not None}
    return said | kind.derived(values, tensors)


def _refuse_what_differs(name: str, metadata: Options) -> None:
    for key, neutral in UNSUPPORTED.items():
        if key not in ARCHITECTURES[name].keys:
            metadata.only(f"{name}.{key}", *neutral)
    if metadata.get(pooling := f"{name}.pooling_type", 0):
        metadata.refuse(pooling, "is of a model that embeds texts; only encoders can do that here")


def _sizes(name: str, metadata: Options, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    num_heads = metadata.integer(f"{name}.attention.head_count")
    return {
        "model_type": _model_type(name, metadata),
        "vocab_size": _vocab_size(tensors),
        "hidden_size": metadata.integer(f"{name}.embedding_length"),
        "intermediate_size": metadata.integer(f"{name}.feed_forward_length"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata.integer(f"{name}.attention.head_count_kv", num_heads),
        "rms_norm_eps": metadata.number(f"{name}.attention.{ARCHITECTURES[name].norm}"),
    }


def _positions(
    name: str, metadata: Options, tensors: Mapping[str, Tensor], problems: list[str]
) -> dict[str, Any]:
    length = metadata.integer(f"{name}.context_length")
    if not 1 < length <= MOST_POSITIONS:
        problems.append(f"{name}.context_length {length} must be 2 to {MOST_POSITIONS}")
    longest = FAMILIES[_model_type(name, metadata)].context_length  # of those that read any length
    return {
        "max_position_embeddings": min(length, longest or length),
        "rope_theta": metadata.number(f"{name}.rope.freq_base", 10000.0),
        "rope_scaling": _scaling(name, metadata, tensors, length),
        "rope_local_base_freq": metadata.get(f"{name}.rope.freq_base_swa"),
        "sliding_window": metadata.get(f"{name}.attention.sliding_window"),
        **_window_pattern(metadata.get(f"{name}.attention.sliding_window_pattern")),
    }


def _head_sizes(name: str, metadata: Options, values: Mapping[str, Any]) -> dict[str, Any]:
    whole = values["hidden_size"] // max(values["num_attention_heads"], 1)
    head_dim = _head_dim(name, metadata, whole)
    is_wide = values["num_hidden_layers"] == ARCHITECTURES[name].wide_blocks
    return {
        "head_dim": head_dim,
        "partial_rotary_factor": _read_rotated_part(name, metadata, head_dim),
        "query_pre_attn_scalar": whole if is_wide else head_dim,
    }


def _is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the output layer is the table of words, which some files hold twice."""
    table, output = tensors.get("token_embd.weight"), tensors.get("output.weight")
    if table is None or output is None:
        return output is None
    return table.kind == output.kind and np.array_equal(table.data, output.data)


def _model_type(name: str, metadata: Options) -> str:
    """Call a Llama with experts a Mixtral, and one with a window a Mistral."""
    if name == "llama" and metadata.get(f"{name}.expert_count", 0):
        return "mixtral"
    if name == "llama" and f"{name}.attention.sliding_window" in metadata:
        return "mistral"
    return ARCHITECTURES[name].model_type or name


def _window_pattern(pattern: Any) -> dict[str, Any]:
    """Return the options for a pattern: the distance of full layers, or a flag for each layer."""
    if not isinstance(pattern, list):
        return {"sliding_window_pattern": pattern}
    kinds = ("full_attention", "sliding_attention")
    return {"layer_types": [kinds[bool(is_windowed)] for is_windowed in pattern]}


def conventions(metadata: Options, notes: list[str]) -> Conventions:
    """notes: gets a note of chat templates that are left out."""
    begins = metadata.flag("tokenizer.ggml.add_bos_token", _begins_with_bos(metadata))
    bos = _special_id(metadata, "bos")
    template = _chat_template(metadata, notes)
    off = [key for key in ADDED_BEHIND if metadata.values.get(key) is False]
    metadata.use(*off)
    return Conventions(
        prompt_prefix=(bos,) if begins and bos is not None else (),
        stop=_stop_ids(metadata),
        unk=_special_id(metadata, "unknown") if _is_sentencepiece(metadata) else None,
        chat_template=template,
        generation=_generation(metadata),
    )


def _chat_template(metadata: Options, notes: list[str]) -> str | None:
    """Read the template, and those for other uses, each of which has a key of its own."""
    key = "tokenizer.chat_template"
    named = {name: metadata.word(f"{key}.{name}", "") for name in metadata.words(f"{key}s")}
    named[DEFAULT] = metadata.word(key, "")
    return merge_templates({name: text for name, text in named.items() if text}, notes)


def _generation(metadata: Options) -> dict[str, Any]:
    """Read the recommended options of sampling."""
    keys = {name: f"general.sampling.{name}" for name in SAMPLING}
    return {
        SAMPLING[name]: round(metadata.number(key), 6) if name != "top_k" else metadata.integer(key)
        for name, key in keys.items()
        if key in metadata
    }


def _is_sentencepiece(metadata: Options) -> bool:
    """Vocabularies of bytes can say everything, and begin texts with nothing."""
    return metadata.get("tokenizer.ggml.model") == "llama"


def _begins_with_bos(metadata: Options) -> bool:
    splitting = PRE_TOKENIZATIONS.get(metadata.word("tokenizer.ggml.pre", ""))
    return _is_sentencepiece(metadata) or (splitting is not None and splitting.begins_with_bos)


def _stop_ids(metadata: Options) -> tuple[int, ...]:
    named = [_special_id(metadata, name) for name in ("eos", "eot", "eom")]
    tokens = metadata.words("tokenizer.ggml.tokens")
    kinds = metadata.get("tokenizer.ggml.token_type", ())
    is_harmony = {*tokens} >= OF_HARMONY
    ends_of_texts = END_TOKENS | OF_HARMONY if is_harmony else END_TOKENS
    pairs = enumerate(zip(tokens, kinds, strict=False))
    ends = [i for i, (token, kind) in pairs if kind == CONTROL and token in ends_of_texts]
    not_last = {i for i, token in enumerate(tokens) if is_harmony and token == "<|end|>"}
    return tuple(dict.fromkeys(i for i in (*named, *ends) if i is not None and i not in not_last))


def _special_ids(metadata: Options) -> dict[str, int | None]:
    """Read what the file says, which may be only some; the end's stands for padding."""
    end, padding = _special_id(metadata, "eos"), _special_id(metadata, "padding")
    return {
        "bos_token_id": _special_id(metadata, "bos"),
        "eos_token_id": end,
        "pad_token_id": end if padding is None else padding,
    }


def _special_id(metadata: Options, name: str) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    return metadata.integer(key) if key in metadata else None


def _vocab_size(tensors: Mapping[str, Tensor]) -> int:
    """Return the number of embeddings; a missing table is reported with the other tensors."""
    return tensors["token_embd.weight"].shape[0] if "token_embd.weight" in tensors else 1


def _head_dim(name: str, metadata: Options, default: int) -> int:
    keys = [f"{name}.attention.{part}_length" for part in ("key", "value")]
    sizes = {metadata.integer(key) for key in keys if key in metadata}
    if len(sizes) > 1:
        metadata.refuse(keys[0], f"differs from {keys[1]}")
    return min(sizes, default=default)


def _read_rotated_part(name: str, metadata: Options, head_dim: int) -> float | None:
    """Return the part of a head that rotates; None for all of it. Others are refused where the rows
    of weights are permuted, as these permutations are of whole heads.
    """
    key = f"{name}.rope.dimension_count"
    count = metadata.integer(key, head_dim)
    if count == head_dim:
        return None
    if not 0 < count < head_dim or count % 2 or ARCHITECTURES[name].is_permuted:
        metadata.refuse(key, f"does not fit heads of {head_dim}")
    return (count + 0.5) / max(head_dim, 1)  # which is cut to the count itself again


def _scaling(
    name: str, metadata: Options, tensors: Mapping[str, Tensor], length: int
) -> dict[str, Any] | None:
    """`rope_scaling` of a `config.json`."""
    key = f"{name}.rope.scaling"
    if metadata.get(f"{key}.type") == "none" or ROPE_FREQUENCIES in tensors:
        metadata.use(f"{key}.original_context_length")
    if ROPE_FREQUENCIES in tensors:
        return _by_divisors(tensors[ROPE_FREQUENCIES], tensors[ROPE_FREQUENCIES], length, 1.0)
    if ROPE_LONG in tensors and ROPE_SHORT in tensors:
        inner = metadata.integer(f"{key}.original_context_length", length)
        sharpness = metadata.get(f"{key}.attn_factor")
        return _by_divisors(tensors[ROPE_SHORT], tensors[ROPE_LONG], inner, sharpness)
    kind = metadata.word(f"{key}.type", "none")
    factor = metadata.number(f"{key}.factor", metadata.number(f"{name}.rope.scale_linear", 1.0))
    original = metadata.get(f"{key}.original_context_length")
    if kind == "none" and factor == 1.0:
        return None
    if kind in ("none", "linear"):
        return {"rope_type": "linear", "factor": factor}
    if kind != "yarn":
        metadata.refuse(f"{key}.type")
    scaling = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original}
    for end in ("fast", "slow"):
        if (beta := metadata.get(f"{key}.yarn_beta_{end}")) is not None:
            scaling[f"beta_{end}"] = beta
    if f"{key}.attn_factor" in metadata:
        sharpness = 1 + 0.1 * math.log(max(factor, 1.0))
        scaling["attention_factor"] = metadata.number(f"{key}.attn_factor") * sharpness
    return scaling


def _by_divisors(
    short: Tensor, long: Tensor, original_length: int, factor: float | None
) -> dict[str, Any]:
    """Describe LongRoPE and Llama 3's scaling, which files hold as each frequency's divisor."""
    return {
        "rope_type": "longrope",
        "short_factor": np.ravel(short.read()).tolist(),
        "long_factor": np.ravel(long.read()).tolist(),
        "attention_factor": factor,
        "original_max_position_embeddings": original_length,
    }


ATTENTION_BIASES = ("blk.0.attn_q.bias", "blk.0.attn_qkv.bias")
ROPE_FREQUENCIES = "rope_freqs.weight"
ROPE_SHORT, ROPE_LONG = "rope_factors_short.weight", "rope_factors_long.weight"
# part of the configuration
ROPE_TABLES = tuple(map(re.escape, (ROPE_FREQUENCIES, ROPE_SHORT, ROPE_LONG)))
_IN_BLOCK = re.compile(r"blk\.(\d+)\.\w+\.(weight|bias)")


def num_blocks(names: Collection[str]) -> int:
    """Return the number of layers that have tensors."""
    return len({match[1] for name in names if (match := _IN_BLOCK.fullmatch(name))})
