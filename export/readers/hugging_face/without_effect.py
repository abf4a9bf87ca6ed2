"""Lists the keys of Hugging Face's files that change nothing here: they concern training, what a
program prints or returns, how fast it runs, and where a model comes from.

A key that is neither read nor listed here is named in a note. Values that do change what a model
computes belong to the readers, which use or refuse them.
"""

import re


def _whole(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


OF_CONFIG = _whole(
    # where it comes from, and with which program
    r"_\w+|architectures|attn_implementation|auto_map|dtype|finetuning_task|model_type|torch_dtype",
    r"tokenizer_class|transformers_version|unsloth_\w+|use_bfloat16|transformers\.js_config",
    # training
    r"\w*dropout(_prob|_rate)?|\w*pdrop|dropout_\w+|\w*layerdrop|initializer_\w+|init_std",
    r"gradient_checkpointing|tf_legacy_loss|rescale_prenorm_residual|time_step_(min|max|rank|floor)",
    # what is returned, and in which pieces it is computed
    r"output_\w+|return_dict\w*|use_return_dict|torchscript|use_cache|chunk_size(_feed_forward)?",
    r"pretraining_tp|reorder_and_upcast_attn|residual_in_fp32|use_mamba_kernels|cache_implementation",
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
