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
SAMPLING = {"temperature": 1.0, "top_k": 50, "top_p": 1.0}  # what generate() takes if none is said
NEUTRAL: Mapping[str, Any] = {
    "num_beams": 1,
    "length_penalty": 1.0,
    "early_stopping": False,
    "repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "min_tokens": 0,
}


def generation_defaults(options: Options) -> dict[str, Any]:
    """Read those that change anything, by our names.

    Without `do_sample` the likeliest token is taken, whatever temperature stands there.
    """
    found = {ours: options.values[theirs] for theirs, ours in NAMES.items() if theirs in options}
    if options.flag("do_sample", False):
        found |= {name: options.values.get(name, default) for name, default in SAMPLING.items()}
    return {name: value for name, value in found.items() if value != NEUTRAL.get(name)}


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
