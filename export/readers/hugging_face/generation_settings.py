"""What a Hugging Face folder says of generation: defaults, logits processors, ends of texts."""

import math
from collections.abc import Collection
from typing import Any

from export.readers.common.options import LARGEST, Options
from export.readers.hugging_face.config_keys import (
    NAMES,
    NEUTRAL,
    NOT_SAMPLED_BY,
    SAMPLING,
    UNSUPPORTED,
)
from export.readers.hugging_face.folder import Folder
from export.readers.hugging_face.tokenizers import (
    token_ids,
    token_text,
)

NO_END = "{file}: eos_token {end} is no token of the model, and ends no text"


def generation_defaults(options: Options) -> dict[str, Any]:
    """Read those that change anything, by our names.

    Without `do_sample` the likeliest token is taken, whatever temperature stands there.
    """
    defaults = {ours: options.get(theirs) for theirs, ours in NAMES.items() if theirs in options}
    options.use(*SAMPLING, *(name for name in NOT_SAMPLED_BY if not options.values.get(name)))
    if options.flag("do_sample", False):
        defaults |= {name: options.get(name, default) for name, default in SAMPLING.items()}
    return {name: value for name, value in defaults.items() if value != NEUTRAL.get(name)}


def refuse_unsupported(options: Options, except_for: Collection[str] = ()) -> None:
    """Refuse options that change what is generated, and that nothing here computes."""
    for name, values in UNSUPPORTED.items():
        if name not in except_for:
            options.only(name, *values)
    options.use("diversity_penalty")  # of groups of beams, which are refused
    if options.values.get("num_return_sequences") == 1:
        options.use("num_return_sequences")


def logits_processors(options: Options, vocab_size: int, num_counted: int = 0) -> dict[str, Any]:
    """Read what makes every request change the scores, by the names of the manifest's
    `LogitsProcessors`.

    num_counted: tokens of a target's beginning that count as generated ones.
    """
    words = options.get("bad_words_ids", [])
    processors: dict[str, Any] = {
        "bad_words_ids": words,
        "encoder_no_repeat_ngram_size": options.integer("encoder_no_repeat_ngram_size", 0),
        "encoder_repetition_penalty": options.positive("encoder_repetition_penalty", 1.0),
        "exponential_decay_length_penalty": _length_decay(options, num_counted),
        "renormalize_logits": options.flag("renormalize_logits", False),
    }
    is_list = isinstance(words, list) and all(isinstance(word, list) and word for word in words)
    token_ids = [token_id for word in words for token_id in word] if is_list else [None]
    if not all(type(i) is int and 0 <= i < vocab_size for i in token_ids):
        options.refuse("bad_words_ids", f"must be lists of tokens below vocab_size {vocab_size}")
        processors["bad_words_ids"] = []
    for name in ("suppress_tokens", "begin_suppress_tokens"):
        # transformers takes an id of no token to name nothing.
        processors[name] = [i for i in dict.fromkeys(options.ids(name)) if 0 <= i < vocab_size]
    if processors["encoder_repetition_penalty"] == 1:
        del processors["encoder_repetition_penalty"]
    return {name: value for name, value in processors.items() if value}


def _length_decay(options: Options, num_counted: int) -> dict[str, Any] | None:
    name = "exponential_decay_length_penalty"
    match options.get(name):
        case None:
            return None
        case [int(start), int(factor) | float(factor)] if 0 < factor < LARGEST:
            return {"start": start - num_counted, "factor": float(factor)}
    options.refuse(name, "must be the number of a token and a factor above 0")
    return None


def forced_eos(options: Options, stop: tuple[int, ...]) -> int | None:
    """Read which token ends a text that its length ends; None if any may stand there."""
    name = "forced_eos_token_id"
    ids = options.ids(name)
    if not {*ids} <= {*stop}:
        options.refuse(name, "must be an eos_token_id")
    return min(ids, default=None)  # the one that transformers takes of several


def stop_ids(folder: Folder, vocab_size: float) -> tuple[int, ...]:
    """Return every token that a file names as an end of texts, the tokenizer's first: it is what
    texts are written with. What the model has no token for ends nothing, as a note says.
    """
    if "vocab_size" not in folder.config:  # which is a problem of its own
        vocab_size = math.inf
    named: list[tuple[Options, int]] = []
    token = token_text(folder.tokenizer.get("eos_token"))
    if token and folder.tokenizers is not None:
        ids = token_ids(folder.tokenizers.target or folder.tokenizers.source)
        if token in ids:
            named.append((folder.tokenizer, ids[token]))
        else:
            folder.notes.append(NO_END.format(file=folder.tokenizer.file, end=repr(token)))
    for options in (folder.generation, folder.config):
        named += [(options, i) for i in options.ids("eos_token_id") if i >= 0]
    for options, token_id in named:
        if token_id >= vocab_size:
            folder.notes.append(NO_END.format(file=options.file, end=token_id))
    return tuple(dict.fromkeys(token_id for _, token_id in named if token_id < vocab_size))
