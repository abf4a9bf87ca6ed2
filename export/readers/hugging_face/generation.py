"""Reads defaults of requests from `generation_config.json` as `transformers` understands it."""

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
OFF = {"min_p": 0.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}
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
    {*NAMES, *SAMPLING, *UNSUPPORTED}
    | {"do_sample", "max_length", "min_length", "forced_bos_token_id", "forced_eos_token_id"}
    | {"eos_token_id", "max_time", "renormalize_logits"}
)


def generation_defaults(options: Options) -> dict[str, Any]:
    """Read those that change anything, by our names.

    Without `do_sample` the likeliest token is taken, whatever temperature stands there.
    """
    found = {ours: options.get(theirs) for theirs, ours in NAMES.items() if theirs in options}
    options.use(*SAMPLING)
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
