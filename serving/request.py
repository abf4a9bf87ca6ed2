"""The requests and events of the engine, in token ids.

A pipeline makes a `GenerationRequest` and reads events: any number of `TokenEvent`, then exactly
one final event (`FinishedEvent`, `FailedEvent` or `AbortedEvent`).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from serving.errors import RequestError
from serving.parameters import (
    GREEDY,
    NO_PROCESSORS,
    BeamParams,
    ProcessorParams,
    SamplingParams,
    TokenIds,
    require_integer,
    require_number,
)

MAX_LOGPROBS = 20
MAX_PRIORITY = 1_000_000
MAX_TIMEOUT_SECONDS = 86_400.0

AttentionWeights = np.ndarray[Any, np.dtype[np.float32]]
Ids = np.ndarray[Any, np.dtype[np.int64]]
Vector = np.ndarray[Any, np.dtype[np.float32]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Matcher(Protocol):
    """The position of one row in its grammar."""

    def allowed(self, mask: Mask) -> None:
        """Set `mask` [vocabulary] to the tokens that may come next.

        A stop token is allowed if the text so far is complete. If no token is allowed, the row
        cannot go on.
        """

    def accept(self, token_id: int) -> None:
        """Go on by a token that is allowed."""

    def fork(self) -> "Matcher":
        """Return a matcher at the same position, for another row."""


class Constraint(Protocol):
    """A compiled grammar; each row that must follow it has its own matcher."""

    def start(self) -> Matcher: ...


@dataclass(frozen=True, slots=True)
class AttentionQuery:
    """Attention weights that a request asks for.

    kind: see `serving.bundle.manifest.AttentionKind`.
    layers, heads: counted from 0; empty for all.
    is_mean: report the mean over these layers and heads instead of each.
    """

    kind: str
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    is_mean: bool = False


# For each attention query of a request, arrays f32 [layers, heads, tokens, positions]. The arrays
# of all events of a request, in order, are the rows of its attention map.
AttentionPieces = tuple[tuple[AttentionWeights, ...], ...]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for one sequence.

    source_ids: the input of the encoder, with prefix and suffix; None for a language model. Models
        that only encode read nothing else. pair_start: where its second text begins, if any.
    prompt_ids: target tokens that are given and not reported, after the bundle's `prompt_prefix`.
        is_whole: they are the whole prompt, without this prefix.
    forced_ids: target tokens that are given and reported, with their log-probabilities, as if they
        were generated. With `max_new_tokens` 0 they are the whole target, and a stop token at their
        end ends the request; this scores a target. Stop tokens at other places end nothing.
    sampling: how tokens are drawn; not used with `beam`.
    max_new_tokens: after the forced ones; None means as many as the limits of the bundle allow.
    logprobs: number of likeliest tokens to report with each token; None reports none.
    returns_logprobs: report the log-probability of each token, as always with `logprobs` or `beam`.
        Otherwise it is 0; steps in which all rows are greedy and report none are faster.
    stop_token_ids: further stop tokens. ignore_eos: the bundle's stop tokens end nothing.
    constraint: a grammar that the generated tokens must follow.
    alignment_heads: report with each token its attention over the source, the mean over these heads
        (numbered through all layers); empty for the heads that the bundle recommends; None reports
        none.
    attention_queries: further attention weights to report.
    streams: with `beam`, report tokens as soon as they are certain, not all at the end.
    shortlist: i64, ascending: the tokens that may be generated, for bundles with a shortlist; None
        for the whole vocabulary. Tokens that the request itself names may also be generated.
    priority: lower values come first. timeout_seconds: from submission to the last token.
    job_id: the job that it belongs to; jobs take turns. Empty if the request is its own job.
    share: the account that it belongs to; accounts get equal shares.
    """

    request_id: str
    source_ids: TokenIds | None = None
    prompt_ids: TokenIds = ()
    sampling: SamplingParams = GREEDY
    max_new_tokens: int | None = None
    logprobs: int | None = None
    returns_logprobs: bool = True
    forced_ids: TokenIds = ()
    beam: BeamParams | None = None
    processors: ProcessorParams = NO_PROCESSORS
    stop_token_ids: TokenIds = ()
    ignore_eos: bool = False
    constraint: Constraint | None = None
    alignment_heads: tuple[int, ...] | None = None
    attention_queries: tuple[AttentionQuery, ...] = ()
    streams: bool = False
    is_whole: bool = False
    shortlist: Ids | None = field(default=None, compare=False)
    priority: int = 0
    timeout_seconds: float | None = None
    job_id: str = ""
    share: str = ""
    pair_start: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            require_integer("max_new_tokens", self.max_new_tokens, 0 if self.forced_ids else 1)
        if self.logprobs is not None:
            require_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        require_integer("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.timeout_seconds is not None:
            require_number("timeout_seconds", self.timeout_seconds, 0.001, MAX_TIMEOUT_SECONDS)
        self._check_search()

    def _check_search(self) -> None:
        if self.beam is None:
            return
        if self.sampling.temperature > 0:
            message = "cannot be combined with num_beams"
            raise RequestError("temperature", self.sampling.temperature, message)
        for name, value in self.sampling.filters.items():
            raise RequestError(name, value, "cannot be combined with num_beams")

    @property
    def job(self) -> str:
        return self.job_id or self.request_id

    @property
    def num_rows(self) -> int:
        """Return the maximal number of its rows."""
        return self.beam.num_beams if self.beam else 1


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONSTRAINT = "constraint"  # no token is allowed, or a term of a glossary is missing


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float


@dataclass(slots=True)
class TokenEvent:
    """One token, forced or generated; in a beam search the next token of the best hypothesis.

    A stop token ends the request and is not reported.

    logprob: natural logarithm in the model's distribution (temperature 1, no filters); 0 if the
        request does not ask for it.
    top: the likeliest tokens, best first; empty without `logprobs`.
    alignment: f32 [source tokens], sums to 1; None without `alignment_heads` and coverage penalty.
    attention_pieces: attention weights of the step that chose this token. Decoder attention has a
        row for each token that this step read: the one before, or all before the first event.
    """

    request_id: str
    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    alignment: AttentionWeights | None = None
    attention_pieces: AttentionPieces = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A result of a beam search, with its tokens as events, forced ones first.

    score: its rank, see `BeamParams`; forced tokens do not count.
    """

    tokens: tuple[TokenEvent, ...]
    score: float
    reason: FinishReason
    stop_logprob: float | None = None

    @property
    def token_ids(self) -> TokenIds:
        return tuple(token.token_id for token in self.tokens)


@dataclass(slots=True)
class FinishedEvent:
    """The request ended without an error.

    num_prompt_tokens: the bundle's prefix, the prompt and forced tokens.
    num_generated_tokens: the other reported tokens, and the stop token if it was generated.
    stop_logprob: log-probability of the stop token that ended it; None without one.
    hypotheses: of a beam search, best first; the token events were those of the best.
    attention_pieces: for queries of encoder attention or hops, all weights; for the others, the
        weights of the step that chose the stop token, if one did.
    encoding: of a model that only encodes, f32 [dimension], or one logit for each label.
    queue_seconds: from submission to its row. prefill_seconds: from then to its first step, while
        its source or prompt was read. decode_seconds, num_steps: from then to its end.
    """

    request_id: str
    reason: FinishReason
    num_source_tokens: int
    num_prompt_tokens: int
    num_generated_tokens: int
    stop_logprob: float | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    attention_pieces: AttentionPieces = field(default=(), compare=False)
    queue_seconds: float = field(default=0.0, compare=False)
    prefill_seconds: float = field(default=0.0, compare=False)
    decode_seconds: float = field(default=0.0, compare=False)
    num_steps: int = field(default=0, compare=False)
    encoding: Vector | None = field(default=None, compare=False)


@dataclass(slots=True)
class FailedEvent:
    """The request was accepted, then the engine failed."""

    request_id: str
    error: Exception


@dataclass(slots=True)
class AbortedEvent:
    """The request was cancelled, or the engine was shut down."""

    request_id: str


Event = TokenEvent | FinishedEvent | FailedEvent | AbortedEvent


def is_final(event: Event) -> bool:
    return type(event) is not TokenEvent
