"""Turns a job's decoding into what the engine is asked: words become tokens, seeds are shared out.

Both houses build their requests over this, so that a field of decoding means the same in both.
"""

from dataclasses import replace
from typing import Any

from serving.errors import RequestError
from serving.parameters import MAX_SEED, ProcessorParams, SamplingParams, TokenIds
from serving.pipelines.decoding import Decoding
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer


def request_arguments(decoding: Decoding, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the arguments that each `GenerationRequest` of a job has of its decoding.

    Sampling is not among them, as each request has its own seed, nor the limit of new tokens, of
    which each house has its own default. Raises RequestError for fields that contradict each other.
    """
    _check(decoding)
    return {
        "beam": decoding.beam,
        "processors": _processors(decoding, tokenizer),
        "stop_token_ids": decoding.stop_token_ids,
        "ignore_eos": decoding.ignore_eos,
        "logprobs": decoding.logprobs,
        "priority": decoding.priority,
        "timeout_seconds": decoding.timeout_seconds,
        "share": decoding.share,
    }


def sampling_with_own_seed(sampling: SamplingParams, number: int) -> SamplingParams:
    """Return the sampling of one request among several that share a job's seed.

    Each draws with a seed of its own, the job's plus its number, modulo 2**64: so they differ, and
    can be had again.
    """
    if sampling.seed is None or number == 0:
        return sampling
    return replace(sampling, seed=(sampling.seed + number) % (MAX_SEED + 1))


def word_spellings(tokenizer: Tokenizer, word: str) -> tuple[TokenIds, ...]:
    """Return the tokens of a word where a text begins, and after a space."""
    written = (word.lstrip(), " " + word.lstrip())
    return tuple(dict.fromkeys(tuple(tokenizer.encode_inside(text)) for text in written))


def _check(decoding: Decoding) -> None:
    if decoding.structure is not None and decoding.ignore_eos:
        raise RequestError("ignore_eos", True, f"has no end with {decoding.structure.field}")
    limit = decoding.max_new_tokens
    min_tokens = decoding.processors.min_tokens
    if limit is not None and min_tokens > limit:
        message = f"must be at most the {limit} tokens that may be generated"
        raise RequestError("min_tokens", min_tokens, message)


def _processors(decoding: Decoding, tokenizer: Tokenizer) -> ProcessorParams:
    with tokenizing("bad_words"):
        words = [ids for word in decoding.bad_words for ids in word_spellings(tokenizer, word)]
    return replace(decoding.processors, bad_words=tuple(words))
