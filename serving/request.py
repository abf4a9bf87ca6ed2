"""What the engine is asked and what it answers, in token ids.

Pipelines build a `GenerationRequest` and read events: any number of `TokenEvent`, then exactly one
final event (`FinishedEvent`, `FailedEvent` or `AbortedEvent`). Nothing here knows text, models or
HTTP.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from serving.errors import RequestError

MAX_SEED = 2**64 - 1
MAX_LOGPROBS = 20


def _require_integer(field: str, value: object, low: int, high: int | None = None) -> None:
    in_range = f"at least {low}" if high is None else f"between {low} and {high}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise RequestError(field, value, f"must be an integer {in_range}")
    if value < low or (high is not None and value > high):
        raise RequestError(field, value, f"must be {in_range}")


def _require_number(field: str, value: object, low: float, high: float) -> None:
    message = f"must be a number between {low:g} and {high:g}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RequestError(field, value, message)
    if not math.isfinite(value) or not low <= value <= high:
        raise RequestError(field, value, message)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a next token is drawn. The defaults are greedy decoding.

    temperature: divides the logits; 0 takes the likeliest token.
    top_k: only the k likeliest tokens; 0 means all.
    top_p: only the smallest set of likeliest tokens that holds this much probability (after top_k).
    seed: the same seed and request give the same tokens at any load; None draws a fresh one.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _require_number("temperature", self.temperature, 0.0, 100.0)
        _require_integer("top_k", self.top_k, 0)
        _require_number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise RequestError("top_p", self.top_p, "must be greater than 0")
        if self.seed is not None:
            _require_integer("seed", self.seed, -(2**63), MAX_SEED)

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0 or self.top_k == 1


GREEDY = SamplingParams()


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One sequence to generate.

    source_ids: the encoder's input, prefix and suffix included; None for a language model.
    prompt_ids: target tokens given in advance, after the bundle's own `prompt_prefix`.
    max_new_tokens: None means as many as the bundle's limits leave.
    logprobs: how many of the likeliest tokens to report with each token; None reports none.
    """

    request_id: str
    source_ids: tuple[int, ...] | None = None
    prompt_ids: tuple[int, ...] = ()
    sampling: SamplingParams = GREEDY
    max_new_tokens: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            _require_integer("max_new_tokens", self.max_new_tokens, 1)
        if self.logprobs is not None:
            _require_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float


@dataclass(slots=True)
class TokenEvent:
    """One generated token. A stop token ends the request and is not reported.

    logprob: natural logarithm, of the model's own distribution (temperature 1, no filters).
    top: the likeliest tokens, best first; empty unless `logprobs` asked for them.
    """

    request_id: str
    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...] = ()


@dataclass(slots=True)
class FinishedEvent:
    """The request ended as it should. num_prompt_tokens counts the bundle's prefix too."""

    request_id: str
    reason: FinishReason
    num_source_tokens: int
    num_prompt_tokens: int
    num_generated_tokens: int


@dataclass(slots=True)
class FailedEvent:
    """The request was accepted, then our side failed."""

    request_id: str
    error: Exception


@dataclass(slots=True)
class AbortedEvent:
    """The request was cancelled, or the engine shut down."""

    request_id: str


Event = TokenEvent | FinishedEvent | FailedEvent | AbortedEvent


def is_final(event: Event) -> bool:
    return type(event) is not TokenEvent
