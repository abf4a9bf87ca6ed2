"""Defaults of requests from `generation_config.json`, as `transformers` understands it, and the
keys of Hugging Face's files that change nothing here.

Those keys concern training, what a program prints or returns, how fast it runs, and where a model
comes from. A key that is neither read nor listed here is named in a note. Values that do change
what a model computes belong to the readers, which use or refuse them.
"""

import re
from collections.abc import Mapping
from typing import Any

from export.readers.common.options import Options

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
UNSUPPORTED: Mapping[str, tuple[Any, ...]] = {  # with the values that ask for nothing
    "bad_words_ids": ([],),
    "begin_suppress_tokens": ([],),
    "constraints": ([],),
    "diversity_penalty": (0.0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": ([],),
    "forced_decoder_ids": ([],),
    "guidance_scale": (1.0,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "sequence_bias": ({}, []),
    "stop_strings": ([],),
    "suppress_tokens": ([],),
    "token_healing": (False,),
    "top_h": (),
    "watermarking_config": (),
}
# Options of generation in `config.json`, which count only if no other file has any.
KEYS = frozenset(
    {*NAMES, *SAMPLING, *NOT_SAMPLED_BY, *UNSUPPORTED}
    | {"do_sample", "max_length", "min_length", "forced_bos_token_id", "forced_eos_token_id"}
    | {"eos_token_id", "max_time", "renormalize_logits"}
)


def generation_defaults(options: Options) -> dict[str, Any]:
    """Read those that change anything, by our names.

    Without `do_sample` the likeliest token is taken, whatever temperature stands there.
    """
    found = {ours: options.get(theirs) for theirs, ours in NAMES.items() if theirs in options}
    options.use(*SAMPLING, *(name for name in NOT_SAMPLED_BY if not options.values.get(name)))
    if options.flag("do_sample", False):
        found |= {name: options.get(name, default) for name, default in SAMPLING.items()}
    return {name: value for name, value in found.items() if value != NEUTRAL.get(name)}


def refuse_unsupported(options: Options, *supported: str) -> None:
    """Refuse options that change what is generated. supported: those that the caller reads."""
    for name, values in UNSUPPORTED.items():
        if name not in supported:
            options.only(name, *values)
    if options.values.get("renormalize_logits") is False:
        options.use("renormalize_logits")


def forced_eos(options: Options, stop: tuple[int, ...]) -> int | None:
    """Read which token ends a text that its length ends; None if any may stand there."""
    name = "forced_eos_token_id"
    found = options.ids(name)
    if len(found) > 1:
        options.refuse(name, "must be one token")
    elif not {*found} <= {*stop}:
        options.refuse(name, "must be an eos_token_id")
    return found[0] if found else None


def stop_ids(generation: Options, config: Options) -> tuple[int, ...]:
    """Read what ends a text from `generation_config.json`, else from `config.json`."""
    return generation.ids("eos_token_id") or config.ids("eos_token_id")


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
