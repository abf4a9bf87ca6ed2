"""Defines what the engine is asked and what it answers, in token ids.

Pipelines build a `GenerationRequest` and read events: any number of `TokenEvent`, then exactly one
final event (`FinishedEvent`, `FailedEvent` or `AbortedEvent`). Nothing here knows text, models or
HTTP.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np

from serving.constraints import Constraint
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


@dataclass(frozen=True, slots=True)
class AttentionQuery:
    """Attention weights that a request wants reported.

    kind: see `serving.bundle.manifest.AttentionKind`.
    layers, heads: counted from 0; empty for all.
    is_mean: report the mean over these layers and heads, not each by itself.
    """

    kind: str
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    is_mean: bool = False


# For each attention query of a request, arrays f32 [layers, heads, tokens, positions]. Those of all
# events of a request, one after the other, are the rows of its attention map.
AttentionPieces = tuple[tuple[AttentionWeights, ...], ...]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Asks for one sequence.

    source_ids: the encoder's input, prefix and suffix included; None for a language model. A model
        that only encodes is asked for nothing else. pair_start: where its second text begins, if it
        has two.
    prompt_ids: target tokens given in advance, after the bundle's own `prompt_prefix`; they are not
        reported. is_whole: they are the whole prompt, without that prefix.
    forced_ids: target tokens given in advance that are reported, each with its log-probability, as
        if they had been generated. Where they are all, with `max_new_tokens` 0, a stop token at
        their end is the request's: that scores a target. Any other of them ends nothing.
    sampling: how tokens are drawn; not used under `beam`.
    max_new_tokens: after the forced ones; None means as many as the bundle's limits leave.
    logprobs: how many of the likeliest tokens to report with each token; None reports none.
    tells_logprobs: the log-probability of each token is reported, as it always is with `logprobs`
        or `beam`; else it is 0, and steps of rows that are all greedy and report none are faster.
    stop_token_ids: end the request as the bundle's own do. ignore_eos: the bundle's own do not.
    constraint: a grammar that the generated tokens must follow.
    alignment_heads: report the attention over the source with every token, averaged over these
        heads (numbered through all layers), or over those the bundle recommends if there are none;
        None reports none.
    attention_queries: report these attention weights too.
    streams: under `beam`, report tokens as soon as they are certain, not all at the end.
    shortlist: i64, ascending: the tokens that may be generated, of a bundle that scores no others;
        None for the whole vocabulary. What the request itself names may come too.
    priority: lower comes first. timeout_seconds: from submission to the last token.
    job_id: what it is a part of: jobs that wait come in by turns; empty for a job of its own.
    share: on whose account it is: so do these.
    """

    request_id: str
    source_ids: TokenIds | None = None
    prompt_ids: TokenIds = ()
    sampling: SamplingParams = GREEDY
    max_new_tokens: int | None = None
    logprobs: int | None = None
    tells_logprobs: bool = True
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
        """Most rows it takes at once."""
        return self.beam.num_beams if self.beam else 1


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    CONSTRAINT = (
        "constraint"  # cannot be met: no token may come, or a term of a glossary is missing
    )


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    token_id: int
    logprob: float


@dataclass(slots=True)
class TokenEvent:
    """Reports one token, forced or generated. A stop token ends the request and is not reported.
    Under beam search: the next token of the best hypothesis.

    logprob: natural logarithm, of the model's own distribution (temperature 1, no filters); 0
        where the request does not want it.
    top: the likeliest tokens, best first; empty unless `logprobs` asked for them.
    alignment: f32 [source tokens], sums to 1; None unless `alignment_heads` or a coverage penalty
        asked for it.
    attention_pieces: what was attended to when this token was chosen. Rows of decoder attention are
        those of the tokens read for that: the one before, or with the first event all before.
    """

    request_id: str
    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    alignment: AttentionWeights | None = None
    attention_pieces: AttentionPieces = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Holds one outcome of a beam search; its tokens as they would be reported, forced ones first.

    score: what it was ranked by, see `BeamParams`; forced tokens do not count.
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
    """Says that the request ended as it should.

    num_prompt_tokens: everything given: the bundle's prefix, the prompt and forced tokens.
    num_generated_tokens: the rest of what was reported, and the stop token if it was generated.
    stop_logprob: log-probability of the stop token that ended it; None if none did.
    hypotheses: of a beam search, best first; the best one is what the token events told.
    attention_pieces: of queries for encoder attention or hops all weights; of the others what was
        attended to when the stop token was chosen, nothing if none ended the request.
    encoding: of a model that only encodes, f32 [dimension], or one logit for each label.
    queue_seconds: from its submission to its row. prefill_seconds: from there to its first step,
        while its source or prompt was read. decode_seconds, num_steps: from there to its end. They
        say nothing of the output.
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
    """Says that the request was accepted, then our side failed."""

    request_id: str
    error: Exception


@dataclass(slots=True)
class AbortedEvent:
    """Says that the request was cancelled, or the engine shut down."""

    request_id: str


Event = TokenEvent | FinishedEvent | FailedEvent | AbortedEvent


def is_final(event: Event) -> bool:
    return type(event) is not TokenEvent
