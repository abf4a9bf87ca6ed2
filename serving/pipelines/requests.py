"""From a job's decoding to the engine's requests: words become tokens."""

from dataclasses import replace
from functools import partial

from serving.errors import RequestError
from serving.parameters import ProcessorParams, TokenIds
from serving.pipelines.decoding import Decoding
from serving.request import GenerationRequest
from serving.text.plain_text import tokenizing
from serving.text.tokenizer import Tokenizer


class RequestMaker:
    """The one place where a `Decoding` becomes what the engine is asked.

    max_new_tokens: of requests that do not say; the engine cuts them to what fits.
    """

    def __init__(self, tokenizer: Tokenizer, max_new_tokens: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_new_tokens = max_new_tokens

    def of(self, decoding: Decoding) -> "partial[GenerationRequest]":
        """A request but for its ids. Raises RequestError for what cannot be."""
        if decoding.structure is not None and decoding.ignore_eos:
            raise RequestError("ignore_eos", True, f"has no end with {decoding.structure.field}")
        limit = decoding.max_new_tokens
        min_tokens = decoding.processors.min_tokens
        if limit is not None and min_tokens > limit:
            message = f"must be at most the {limit} tokens that may be generated"
            raise RequestError("min_tokens", min_tokens, message)
        return partial(
            GenerationRequest,
            sampling=decoding.sampling,
            beam=decoding.beam,
            processors=self._processors(decoding),
            stop_token_ids=decoding.stop_token_ids,
            ignore_eos=decoding.ignore_eos,
            max_new_tokens=self._max_new_tokens if limit is None else limit,
            logprobs=decoding.logprobs,
            priority=decoding.priority,
            timeout_seconds=decoding.timeout_seconds,
        )

    def _processors(self, decoding: Decoding) -> ProcessorParams:
        with tokenizing("bad_words"):
            words = [ids for word in decoding.bad_words for ids in spellings(self._tokenizer, word)]
        return replace(decoding.processors, bad_words=tuple(words))


def spellings(tokenizer: Tokenizer, word: str) -> tuple[TokenIds, ...]:
    """The tokens of a word where a text begins, and after a space."""
    written = (word.lstrip(), " " + word.lstrip())
    return tuple(dict.fromkeys(tuple(tokenizer.encode_inside(text)) for text in written))
