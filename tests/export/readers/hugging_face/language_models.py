"""Tiny random language models of every Hugging Face family, as `transformers` writes them."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from tests.tiny import byte_tokenizer

VOCAB_SIZE = 267  # some more than the tokenizer has, as models often do
PAD, BOS, EOS = 0, 1, 2
CONTEXT_LENGTH = 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_LENGTH,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
WIDE_HEADS = {"head_dim": 32}
ROPE = {"rope_theta": 100.0}
LONGROPE = {
    **ROPE,
    "rope_type": "longrope",
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.7 * i for i in range(8)],
}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 16, **ROPE}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, **ROPE}
GEMMA3_ROPES = {
    "full_attention": {"rope_type": "linear", "factor": 3.0, "rope_theta": 1000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
NEOX = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
NEOX |= {"num_attention_heads": 2}  # heads of 32, of which a quarter rotates
GPT2: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": CONTEXT_LENGTH,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}

GPTJ = GPT2 | {"rotary_dim": 8, "tie_word_embeddings": False}
GPT_NEO: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "num_layers": 3,
    "num_heads": 4,
    "attention_types": [[["global", "local"], 1], [["local"], 1]],
    "window_size": 5,
    "max_position_embeddings": CONTEXT_LENGTH,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}
WITHOUT_WIDTH = {name: value for name, value in NEOX.items() if name != "intermediate_size"}
WITHOUT_WIDTH |= {"num_attention_heads": 4}
BLOOM = {name: value for name, value in WITHOUT_WIDTH.items() if "num_" not in name}
FALCON = WITHOUT_WIDTH | {"ffn_hidden_size": 80}
OPT = WITHOUT_WIDTH | {"ffn_dim": 80}
COMMAND = SIZES | {"logit_scale": 0.6, "rope_theta": 100.0}
MAMBA2: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_heads": 4,
    "head_dim": 16,
    "state_size": 12,
    "n_groups": 2,
    "chunk_size": 8,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}

MAMBA: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "state_size": 12,
    "time_step_rank": 5,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}

LATENT = SIZES | {
    "num_key_value_heads": 4,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 20,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
}

# of each family one, with what tells it apart
FAMILIES: dict[str, dict[str, Any]] = {
    "bloom": BLOOM | {"n_layer": 3, "n_head": 4},
    "codegen": GPTJ,
    "cohere": COMMAND,
    "cohere2": COMMAND | {"sliding_window": 6, "sliding_window_pattern": 2},
    "deepseek_v2": LATENT
    | {"n_routed_experts": 6, "q_lora_rank": None, "first_k_dense_replace": 1}
    | {"rope_parameters": YARN | {"mscale": 0.707, "mscale_all_dim": 0.5}},
    "deepseek_v3": LATENT
    | {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "q_lora_rank": 20}
    | {"first_k_dense_replace": 1, "n_shared_experts": 1},
    "falcon": FALCON,
    "gpt2": GPT2,
    "gpt_neo": GPT_NEO,
    "gpt_neox": NEOX,
    "arcee": SIZES,
    "ernie4_5": SIZES | WIDE_HEADS,
    "exaone4": SIZES | {"num_hidden_layers": 5, "sliding_window": 6},
    "glm": SIZES | WIDE_HEADS,
    "glm4": SIZES | WIDE_HEADS,
    "gpt_oss": SIZES
    | {"head_dim": 16, "intermediate_size": 24, "num_local_experts": 6, "sliding_window": 6}
    | {
        "num_experts_per_tok": 2,
        "swiglu_limit": 0.5,
        "rope_parameters": YARN | {"truncate": False},
    },
    "glm4_moe_lite": LATENT
    | {"n_routed_experts": 6, "q_lora_rank": 20, "v_head_dim": 24}
    | {"mlp_layer_types": ["dense", "dense", "sparse"]},
    "granite": SIZES
    | {"embedding_multiplier": 3.0, "attention_multiplier": 0.1, "residual_multiplier": 0.4}
    | {"logits_scaling": 2.0},
    "helium": SIZES | {"head_dim": 16},
    "hunyuan_v1_dense": SIZES
    | WIDE_HEADS
    | {"rope_parameters": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, **ROPE}},
    "gptj": GPTJ,
    "llama": SIZES | {"rope_parameters": LLAMA3},
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "ministral": SIZES
    | WIDE_HEADS
    | {"sliding_window": 6}
    | {"layer_types": ["full_attention", "sliding_attention", "sliding_attention"]},
    "ministral3": SIZES | WIDE_HEADS | {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.5}},
    "mistral": SIZES | {"sliding_window": 6},
    "mixtral": SIZES | {"num_local_experts": 4, "intermediate_size": 24},
    "qwen2": SIZES | {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    "qwen3": SIZES | WIDE_HEADS,
    "qwen2_moe": SIZES
    | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    "qwen3_moe": SIZES
    | WIDE_HEADS
    | {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    | {"mlp_only_layers": [1], "norm_topk_prob": True},
    "gemma": SIZES | WIDE_HEADS,
    "gemma2": SIZES
    | WIDE_HEADS
    | {"sliding_window": 6, "query_pre_attn_scalar": 100}
    | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 5.0},
    "gemma3_text": SIZES
    | WIDE_HEADS
    | {"sliding_window": 6, "query_pre_attn_scalar": 20}
    | {
        "rope_parameters": GEMMA3_ROPES,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "olmo2": SIZES,
    "olmo3": SIZES
    | {"num_hidden_layers": 5, "sliding_window": 6}
    | {"rope_parameters": {"full_attention": YARN, "sliding_attention": ROPE}},
    "olmo": SIZES | {"clip_qkv": 1.5},
    "opt": OPT,
    "phi": SIZES,
    "phi3": SIZES | {"rope_parameters": LONGROPE, "original_max_position_embeddings": 40},
    "seed_oss": SIZES | WIDE_HEADS,
    "smollm3": SIZES | {"no_rope_layer_interval": 2},
    "stablelm": SIZES,
    "starcoder2": SIZES | {"sliding_window": 6},
}
# what else some of them can be
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2 scaled by layer": {"model_type": "gpt2", **GPT2, "n_inner": 40}
    | {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}
    | {"activation_function": "gelu", "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
    "gpt_neox one after the other": {"model_type": "gpt_neox", **NEOX}
    | {"use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True}
    | {"rope_parameters": {"rope_theta": 500.0, "partial_rotary_factor": 0.5}},
    "bloom with sums after norms": {"model_type": "bloom", **BLOOM, "n_layer": 3, "n_head": 4}
    | {"apply_residual_connection_post_layernorm": True},
    "bloom with 6 heads of 7": {"model_type": "bloom", **BLOOM, "hidden_size": 42}
    | {"n_layer": 2, "n_head": 6},
    "cohere with norms of heads": {"model_type": "cohere", **COMMAND, "hidden_size": 80}
    | {"use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False},
    "deepseek_v2 with groups": {"model_type": "deepseek_v2", **LATENT, "n_routed_experts": 9}
    | {"n_group": 3, "topk_group": 2, "topk_method": "group_limited_greedy", "q_lora_rank": 20}
    | {"routed_scaling_factor": 1.7},
    "deepseek_v3 without groups": {"model_type": "deepseek_v3", **LATENT, "n_routed_experts": 5}
    | {"n_group": 1, "topk_group": 1, "q_lora_rank": None, "first_k_dense_replace": 1}
    | {"rope_interleave": False, "norm_topk_prob": False, "qk_rope_head_dim": 6}
    | {"qk_nope_head_dim": 10, "v_head_dim": 16, "rope_parameters": YARN | {"mscale_all_dim": 1.0}},
    "falcon with linear biases": {"model_type": "falcon", **FALCON, "num_attention_heads": 16}
    | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True},
    "falcon with groups": {"model_type": "falcon", **WITHOUT_WIDTH}
    | {"new_decoder_architecture": True, "num_kv_heads": 2, "activation": "relu"},
    "falcon with groups and one norm": {"model_type": "falcon", **FALCON}
    | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1}
    | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, **ROPE}},
    "olmo with biases": {"model_type": "olmo", **SIZES, "attention_bias": True},
    "opt without biases": {"model_type": "opt", **OPT, "enable_bias": False}
    | {"layer_norm_elementwise_affine": False, "activation_function": "gelu"},
    "stablelm with all": {"model_type": "stablelm", **SIZES, "use_qkv_bias": True}
    | {"qk_layernorm": True, "use_parallel_residual": True, "hidden_size": 80}
    | {"rope_parameters": {"partial_rotary_factor": 0.3, **ROPE}},
    "starcoder2 without biases": {"model_type": "starcoder2", **SIZES, "use_bias": False},
    "smollm2": {"model_type": "llama", **SIZES, "tie_word_embeddings": True},
    "llama with biases": {"model_type": "llama", **SIZES, **WIDE_HEADS}
    | {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1, "rms_norm_eps": 1e-3},
    "llama linear": {"model_type": "llama", **SIZES}
    | {"rope_parameters": {"rope_type": "linear", "factor": 4.0, **ROPE}},
    "llama dynamic": {"model_type": "llama", **SIZES}
    | {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, **ROPE}},
    "llama yarn": {"model_type": "llama", **SIZES, "rope_parameters": YARN},
    "glm4 with 3 pairs of 20": {"model_type": "glm4", **SIZES, "head_dim": 20}
    | {"attention_bias": False, "rope_parameters": {"partial_rotary_factor": 0.3, **ROPE}},
    "granite with biases": {"model_type": "granite", **FAMILIES["granite"]}
    | {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "arcee with biases": {"model_type": "arcee", **SIZES, "attention_bias": True, "mlp_bias": True},
    "ernie4_5 with biases": {"model_type": "ernie4_5", **SIZES, "head_dim": 20, "use_bias": True},
    "exaone4 without windows": {"model_type": "exaone4", **SIZES, "sliding_window": None}
    | {"layer_types": ["full_attention"] * 3},
    "helium with biases": {"model_type": "helium", **SIZES, "head_dim": 16}
    | {"attention_bias": True, "mlp_bias": True},
    "seed_oss with biases": {"model_type": "seed_oss", **SIZES, "head_dim": 20}
    | {"attention_out_bias": True, "mlp_bias": True},
    "hunyuan with heads of 20": {"model_type": "hunyuan_v1_dense", **SIZES, "head_dim": 20}
    | {"attention_bias": True, "rope_parameters": YARN},
    "qwen2 without windows": {"model_type": "qwen2", **SIZES},
    "qwen3 with biases": {"model_type": "qwen3", **SIZES, **WIDE_HEADS, "attention_bias": True},
    "qwen3_moe in every second layer": {"model_type": "qwen3_moe", **SIZES, "num_experts": 5}
    | {"num_experts_per_tok": 3, "moe_intermediate_size": 20, "decoder_sparse_step": 2},
    "qwen2_moe with windows": {"model_type": "qwen2_moe", **SIZES, "num_experts": 5}
    | {"num_experts_per_tok": 3, "moe_intermediate_size": 20, "decoder_sparse_step": 2}
    | {"shared_expert_intermediate_size": 24, "norm_topk_prob": True, "qkv_bias": False}
    | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    "phi with grouped queries": {"model_type": "phi", **SIZES, **NEOX, "num_key_value_heads": 1},
    "phi3 short": {"model_type": "phi3", **SIZES, "sliding_window": 5, "rope_parameters": LONGROPE}
    | {"original_max_position_embeddings": CONTEXT_LENGTH},
    "phi3 partial": {"model_type": "phi3", **SIZES, **NEOX, "num_key_value_heads": 2}
    | {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.75, **ROPE}},
    "mamba untied, with biases": {"model_type": "mamba", **MAMBA, "time_step_rank": "auto"}
    | {"use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False, "conv_kernel": 3}
    | {"expand": 3},
    "mamba2 tied, with biases": {"model_type": "mamba2", **MAMBA2, "n_groups": 1}
    | {"use_bias": True, "use_conv_bias": False, "tie_word_embeddings": True, "conv_kernel": 3},
    # heads of sizes that ONNX Runtime's attention takes only when they are padded
    "gpt2 with heads of 12": {"model_type": "gpt2", **GPT2, "n_embd": 48},
    "gpt_neox with 5 pairs of 20": {"model_type": "gpt_neox", **NEOX, "hidden_size": 40}
    | {"rope_parameters": {**YARN, "partial_rotary_factor": 0.5}},
    "olmo2 with heads of 12": {"model_type": "olmo2", **SIZES, "hidden_size": 48}
    | {"attention_bias": True, "rms_norm_eps": 1e-2},
    "llama with heads of 12": {"model_type": "llama", **SIZES, "hidden_size": 48}
    | {"rope_parameters": YARN},
    "qwen3 with heads of 20": {"model_type": "qwen3", **SIZES, "head_dim": 20},
    "gpt_oss with one kind of layer": {"model_type": "gpt_oss", **SIZES, "head_dim": 20}
    | {"num_local_experts": 3, "num_experts_per_tok": 3, "swiglu_alpha": 2.0}
    | {"attention_bias": False, "layer_types": ["full_attention"] * 3},
    "gemma2 with heads of 24": {"model_type": "gemma2", **FAMILIES["gemma2"], "head_dim": 24},
    "gemma3 that reads pictures": {
        "model_type": "gemma3",
        "text_config": {"model_type": "gemma3_text", **FAMILIES["gemma3_text"]},
        "vision_config": {
            "model_type": "siglip_vision_model",
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            **dict.fromkeys(("hidden_size", "intermediate_size"), 16),
            "image_size": 28,
            "patch_size": 14,
        },
        "image_token_index": 266,
        "mm_tokens_per_image": 4,
        "eos_token_id": EOS,
    },
    "gemma3 with heads of 6": {"model_type": "gemma3_text", **FAMILIES["gemma3_text"]}
    | {"head_dim": 6},
    "phi with 3 pairs of 20": {"model_type": "phi", **SIZES, "hidden_size": 40}
    | {"num_attention_heads": 2, "rope_parameters": {"partial_rotary_factor": 0.3, **ROPE}},
    "smollm3 with heads of 20": {"model_type": "smollm3", **FAMILIES["smollm3"]}
    | {"hidden_size": 80},
}
SEEDS = {  # of those whose first draw never ends, or always
    "codegen": 1,
    "cohere": 1,
    "gemma3_text": 2,
    "mamba2": 2,
    "stablelm": 1,
    "falcon with linear biases": 1,
    "gpt_neox one after the other": 2,
    "bloom with sums after norms": 2,
    "starcoder2 without biases": 2,
    "gemma2 with heads of 24": 1,
    "helium with biases": 1,
    "gemma3 that reads pictures": 1,
    "gemma3 with heads of 6": 2,
}


def random_model(name: str, **changes: Any) -> PreTrainedModel:
    """Everything in it is random, norms and biases too, and its texts end now and then."""
    torch.manual_seed(SEEDS.get(name, 0))
    options = {"model_type": name, **FAMILIES[name]} if name in FAMILIES else VARIANTS[name]
    options = {**options, **changes}
    kind = options["model_type"]
    config = AutoConfig.for_model(**deepcopy(options))  # it writes into what it is given
    # Falcon's eager attention in transformers 5.23 adds linear biases twice.
    config._attn_implementation = "sdpa" if kind == "falcon" else "eager"
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            is_norm = "norm" in part or "ln_" in part
            nn.init.normal_(parameter, std=0.3 if is_norm or parameter.ndim == 1 else 0.25)
            if is_norm and part.endswith("weight") and "gemma" not in kind:
                parameter += 1
        for part, buffer in model.named_buffers():
            if part.endswith("e_score_correction_bias"):
                nn.init.normal_(buffer, std=0.3)
        model.get_output_embeddings().weight[EOS] *= 2.5
    return model


def save(model: PreTrainedModel, folder: Path, **options: Any) -> Path:
    """With a tokenizer that puts <s> before a text."""
    model.save_pretrained(folder, **options)
    tokenizer = byte_tokenizer()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    """After <s>; of four lengths."""
    random = np.random.default_rng(seed)
    lengths = [(4, 5, 9, 15)[number % 4] for number in range(count)]
    return [random.integers(3, 259, length).tolist() for length in lengths]


@torch.inference_mode()
def log_probabilities(model: PreTrainedModel, ids: list[int]) -> np.ndarray:
    """After each of the ids: [ids, vocab]."""
    return model(torch.tensor([ids])).logits[0].log_softmax(-1).numpy()


def generated(model: PreTrainedModel, given: list[list[int]], **options: Any) -> list[list[int]]:
    """Return what `generate` continues each with, </s> included; equally long ones in one batch."""
    found: dict[int, list[int]] = {}
    for length in {len(ids) for ids in given}:
        numbers = [number for number, ids in enumerate(given) if len(ids) == length]
        batch = torch.tensor([[BOS, *given[number]] for number in numbers])
        rows = model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=PAD,
            **{"use_cache": False, **options},
        )
        for number, row in zip(numbers, rows[:, batch.shape[1] :].tolist(), strict=True):
            found[number] = row[: row.index(EOS) + 1] if EOS in row else row
    return [found[number] for number in range(len(given))]
