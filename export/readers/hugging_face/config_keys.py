"""Keys of a Hugging Face folder's files: options of generation, and keys that change nothing."""

import re
from collections.abc import Mapping
from typing import Any

NAMES = {  # theirs -> ours
    "num_beams": "num_beams",
    "length_penalty": "length_penalty",
    "early_stopping": "early_stopping",
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_tokens",
}
OFF = {"min_p": 0.0, "typical_p": 1.0}
NOT_SAMPLED_BY = ("epsilon_cutoff", "eta_cutoff")  # 0 turns them off; other values get a note
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0, **OFF}  # generate()'s own defaults
NEUTRAL: Mapping[str, Any] = {
    "num_beams": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_tokens": 0,
    **OFF,
}
PROCESSORS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "exponential_decay_length_penalty",
    "renormalize_logits",
    "suppress_tokens",
)
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {  # with the values that ask for nothing
    "constraints": ([],),
    "dola_layers": (),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1.0,),
    "num_beam_groups": (1,),
    "penalty_alpha": (0.0,),
    "sequence_bias": ({}, []),
    "stop_strings": ([],),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
# Options of generation in `config.json`, which count only if no other file has any.
KEYS = frozenset(
    {*NAMES, *SAMPLING, *NOT_SAMPLED_BY, *PROCESSORS, *UNSUPPORTED}
    | {"do_sample", "max_length", "min_length", "forced_bos_token_id", "forced_eos_token_id"}
    | {"eos_token_id", "max_time", "diversity_penalty", "num_return_sequences"}
)


def _whole(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


OF_CONFIG = _whole(
    # where it comes from, and with which program
    r"_\w+|architectures|attn_implementation|auto_map|dtype|finetuning_task|model_type|torch_dtype",
    r"tokenizer_class|transformers_version|unsloth_\w+|use_bfloat16|transformers\.js_config",
    r"processor_class",
    # training
    r"\w*dropout(_prob|_rate)?|\w*pdrop|dropout_\w+|\w*layerdrop|initializer_\w+|init_std",
    r"gradient_checkpointing|tf_legacy_loss|rescale_prenorm_residual|time_step_(min|max|rank|floor)",
    # what is returned, and in which pieces it is computed
    r"output_\w+|return_dict\w*|use_return_dict|torchscript|use_cache|chunk_size(_feed_forward)?",
    r"pretraining_tp|reorder_and_upcast_attn|residual_in_fp32|use_mamba_kernels|cache_implementation",
    r"extra_pos_embeddings|fused_add_norm|pad_vocab_size_multiple|rms_norm|ssm_cfg|time_step_\w+scheme",
    # heads of other tasks, and names for classes that a generating model does not have
    r"classif_dropout|classifier_\w+|summary_\w+|id2label|label2id|num_labels|problem_type",
    r"is_decoder|add_cross_attention|cross_attention_hidden_size",
    r"task_specific_params(\..*)?|sep_token_id|is_encoder_decoder|tie_encoder_decoder",
    # sizes that follow from others
    r"n_ctx|n_head|n_layer|n_embd|num_hidden_layers|max_length|vocab_size|ignore_keys_at_rope_\w+",
)
OF_GENERATION = _whole(
    r"_\w+|transformers_version|trust_remote_code",
    r"(pad|bos)_token_id|decoder_start_token_id",
    r"output_\w+|return_dict_in_generate|is_assistant|remove_invalid_values|low_memory",
    r"use_cache|cache_\w+|max_cache_len|prefill_chunk_size|compile_config|disable_compile",
    r"continuous_batching_config|use_mtp|speculation_type|prompt_lookup_num_tokens",
    r"\w*assistant_\w+|max_matching_ngram_size|target_lookbehind",
)
OF_TOKENIZER = _whole(
    r"_\w+|tokenizer_class|auto_map|transformers_version|processor_class|name_or_path",
    r"special_tokens_map_file|tokenizer_file|vocab_file|merges_file|backend|is_local\w*|local_files_only",
    r"(bos|eos|unk|pad|sep|cls|mask|\w*image|\w*video|\w*audio|\w*vision\w*)_token(_id)?",
    r"added_tokens_decoder|(additional|extra|model_specific)_special_tokens|added_tokens",
    r"model_input_names|model_max_length|max_length|stride|truncation\w*|pad(ding)?_\w+|pad_to_\w+",
    r"sp_model_kwargs|separate_vocabs|legacy|use_fast|from_slow|errors|spaces_between_special_tokens",
    r"clean_up_tokenization_spaces|split_special_tokens|use_default_system_prompt|extra_ids",
    r"source_lang|target_lang|src_lang|tgt_lang|language_codes|num_madeup_words",
    r"add_(prefix_space|bos_token|eos_token)|add_dummy_prefix_space",
    r"do_(lower_case|basic_tokenize)|never_split|strip_accents|tokenize_chinese_chars|wordpieces_prefix",
    r"max_len|trim_offsets|normalization|return_token_type_ids|chat_template",
)
OF_PROCESSOR = _whole(
    r"_\w+|processor_class|feature_extractor_type|return_\w+|padding_side|transformers_version",
    r"n_samples|nb_max_frames|mel_filters|chunk_length|sampling_rate",  # follow from others
)
