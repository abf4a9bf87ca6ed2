"""The requests and events of the engine, in token ids.

A pipeline makes a `GenerationRequest` and reads events: a `TokenEvent` for each token if the
request streams, then exactly one final event (`FinishedEvent`, `FailedEvent` or `AbortedEvent`). A
`FinishedEvent` has all tokens, whether the request streams or not.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import repeat
from typing import Any, Protocol, Self

import numpy as np
from typing_extensions import TypeIs

from serving.errors import RequestError
from serving.requests.parameters import (
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
Encoding = Mapping[str, np.ndarray[Any, Any]]  # one text's outputs of the encode graph, by name
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Matcher(Protocol):
    """The position of one row in its grammar."""

    def fill_mask(self, mask: Mask) -> None:
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
# of all tokens of a request, in order, are the rows of its attention map.
AttentionPieces = tuple[tuple[AttentionWeights, ...], ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A source of the encoders that read pictures.

    pixels: levels of red, green and blue, 8 bits each, row after row.
    num_positions: the number of vectors that the encoder makes of it.
    """

    pixels: bytes
    num_positions: int

    @property
    def content(self) -> bytes:
        return self.pixels

    def __len__(self) -> int:
        return self.num_positions


@dataclass(frozen=True, slots=True)
class Audio:
    """A window of sound.

    features: log-mel spectrogram, float32 [mels, frames], row after row.
    num_positions: the number of vectors that the encoder makes of it.
    """

    features: bytes
    num_positions: int

    @property
    def content(self) -> bytes:
        return self.features

    def __len__(self) -> int:
        return self.num_positions


Media = Picture | Audio  # a source that is no text
Source = TokenIds | Media


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for one sequence.

    source_ids: the input of the encoder, with prefix and suffix; None for a language model. Models
        that only encode read nothing else. pair_start: where its second text begins, if any.
    picture, audio: the input of an encoder that reads pictures or sound, in place of `source_ids`.
    prompt_ids: target tokens that are given and not reported, after the bundle's `prompt_prefix`.
        is_whole: they are the whole prompt, without this prefix.
    forced_ids: target tokens that are given and reported, with their log-probabilities, as if they
        were generated. With `max_new_tokens` 0 they are the whole target, and a stop token at their
        end ends the request; this scores a target. Stop tokens at other places end nothing.
    scored_ids: tokens whose log-probabilities at the first position after the prompt are reported
        with the final event, such as those of languages, or of silence.
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
    streams: report each token by an event as soon as it is certain, not only all at the end.
    shortlist: i64, ascending: the tokens that may be generated, for bundles with a shortlist; None
        for the whole vocabulary. Tokens that the request itself names may also be generated.
    priority: lower values come first. timeout_seconds: from submission to the last token.
    job_id: the job that it belongs to; jobs take turns. Empty if the request is its own job.
    share: the account that it belongs to; accounts get equal shares.
    job_accepted_at: when the job was accepted that the request goes on with, by
        `time.perf_counter`: its timeout counts from then, and it is not refused however much waits.
        None for the first requests of a job.
    ends_loops: end by length soon after the tokens began to loop, see
        `serving.engine.decoding.repetition`; not used with `beam`.
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
    picture: Picture | None = None
    audio: Audio | None = None
    scored_ids: TokenIds = ()
    job_accepted_at: float | None = None
    ends_loops: bool = False

    def __post_init__(self) -> None:
        if self.max_new_tokens is not None:
            require_integer("max_new_tokens", self.max_new_tokens, 0 if self.forced_ids else 1)
        if self.logprobs is not None:
            require_integer("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        require_integer("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        if self.timeout_seconds is not None:
            require_number("timeout_seconds", self.timeout_seconds, 0.001, MAX_TIMEOUT_SECONDS)
        if self.beam is not None:
            message = "cannot be combined with num_beams"
            if self.sampling.temperature > 0:
                raise RequestError("temperature", self.sampling.temperature, message)
            for name, value in self.sampling.filters.items():
                raise RequestError(name, value, message)

    @property
    def source(self) -> Source:
        """Return the input of the encoder, empty for a language model."""
        return self.picture or self.audio or self.source_ids or ()

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
        row for each token that this step read: the one before, or all before the first token.
    """

    request_id: str
    token_id: int
    logprob: float
    top: tuple[TokenLogprob, ...] = ()
    alignment: AttentionWeights | None = None
    attention_pieces: AttentionPieces = field(default=(), compare=False)


@dataclass(slots=True)
class OutputTokens:
    """The tokens of a target, forced ones first, and what the request asks of each.

    Lists are empty if the request does not ask for them, else they have an entry for each token,
    which `TokenEvent` describes.
    """

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top: list[tuple[TokenLogprob, ...]] = field(default_factory=list)
    alignments: list[AttentionWeights] = field(default_factory=list, compare=False)
    attention_pieces: list[AttentionPieces] = field(default_factory=list, compare=False)

    @classmethod
    def from_events(cls, events: Iterable[TokenEvent]) -> Self:
        """Return the tokens of events that all have log-probabilities."""
        tokens = cls()
        for event in events:
            tokens.add(event)
        return tokens

    def add(self, event: TokenEvent) -> None:
        """Append a token that has a log-probability."""
        self.ids.append(event.token_id)
        self.logprobs.append(event.logprob)
        if event.top:
            self.top.append(event.top)
        if event.alignment is not None:
            self.alignments.append(event.alignment)
        if event.attention_pieces:
            self.attention_pieces.append(event.attention_pieces)

    def __len__(self) -> int:
        return len(self.ids)

    def iter_tokens(self) -> Iterator[tuple[int, float, tuple[TokenLogprob, ...]]]:
        """Yield id, log-probability and likeliest tokens of each token."""
        return zip(self.ids, self.logprobs or repeat(0.0), self.top or repeat(()), strict=False)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A result: the tokens of one target.

    score: of a beam search, its rank, see `BeamParams`; else the mean log-probability of its
        tokens, or 0 if the request does not ask for it. Forced tokens do not count.
    stop_logprob, stop_id: log-probability and id of the stop token that ended it; None without
        one.
    """

    tokens: OutputTokens
    score: float
    reason: FinishReason
    stop_logprob: float | None = None
    stop_id: int | None = None

    @property
    def logprobs(self) -> list[float]:
        """Return the log-probabilities of its tokens, and of its stop token if it has one."""
        logprobs = self.tokens.logprobs
        return logprobs if self.stop_logprob is None else [*logprobs, self.stop_logprob]


@dataclass(slots=True)
class FinishedEvent:
    """The request ended without an error.

    hypotheses: best first; one, unless a beam search is asked for several. None if the model only
        encodes.
    num_prompt_tokens: the bundle's prefix, the prompt and forced tokens.
    num_generated_tokens: the other reported tokens, and the stop token if it was generated.
    attention_pieces: for queries of encoder attention or hops, all weights; for the others, the
        weights of the step that chose the stop token, if one did.
    encoding: of a model that only encodes, see `serving.bundle.manifest.Task`: an `embedding`, or
        `logits` of labels, or of each token's labels, or of each token `top_logp` and `top_ids`.
    scored_logprobs: of the request's `scored_ids`, in their order, in the model's distribution.
    queue_seconds: from submission to its row. prefill_seconds: from then to its first step, while
        its source or prompt was read. decode_seconds, num_steps: from then to its end.
    """

    request_id: str
    hypotheses: tuple[Hypothesis, ...]
    num_source_tokens: int
    num_prompt_tokens: int
    num_generated_tokens: int
    attention_pieces: AttentionPieces = field(default=(), compare=False)
    scored_logprobs: tuple[float, ...] = ()
    queue_seconds: float = field(default=0.0, compare=False)
    prefill_seconds: float = field(default=0.0, compare=False)
    decode_seconds: float = field(default=0.0, compare=False)
    num_steps: int = field(default=0, compare=False)
    encoding: Encoding | None = field(default=None, compare=False)

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def reason(self) -> FinishReason:
        return self.hypotheses[0].reason if self.hypotheses else FinishReason.STOP


@dataclass(slots=True)
class FailedEvent:
    """The request was accepted, then the engine failed."""

    request_id: str
    error: Exception


@dataclass(slots=True)
class AbortedEvent:
    """The request was cancelled, or the engine was shut down."""

    request_id: str


FinalEvent = FinishedEvent | FailedEvent | AbortedEvent
Event = TokenEvent | FinalEvent


def is_final(event: Event) -> TypeIs[FinalEvent]:
    return type(event) is not TokenEvent
