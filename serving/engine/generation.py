"""A request in progress."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from serving.bundle.manifest import NO_LOGITS_PROCESSORS, AttentionKind, LogitsProcessors
from serving.engine.attention_query import HeadSelection
from serving.engine.decoding.repetition import LoopDetector, may_loop
from serving.errors import DeadlineExceeded
from serving.requests.parameters import NO_PROCESSORS, TokenIds
from serving.requests.request import (
    AbortedEvent,
    AttentionPieces,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    Ids,
    OutputTokens,
)


@dataclass(slots=True)
class Ending:
    """How a generation ends, after the tokens of the step are reported.

    num_generated: see `FinishedEvent`.
    end_pieces: attention weights of the step that chose the stop token.
    hypotheses: of a beam search; otherwise the generation's tokens are the only one.
    """

    generation: "Generation"
    reason: FinishReason
    num_generated: int
    stop_logprob: float | None = None
    end_pieces: AttentionPieces = ()
    hypotheses: tuple[Hypothesis, ...] = ()
    stop_id: int | None = None


@dataclass(slots=True, eq=False)
class Generation:
    """A request in progress in the engine.

    prompt_ids: the bundle's prefix and the request's prompt.
    max_new_tokens: limited by the bundle.
    deadline: a time of `time.perf_counter`, or None.
    shortlist: i64, ascending; None for the whole vocabulary.
    last_id: the token that must be the last of `max_new_tokens`; None allows any.
    model_processors: the logits processors of the model, beside those of the request.
    selections: the heads of each attention query.
    alignment: the heads whose mean is reported with each token.
    step_attention: the kinds of attention that its steps must output.
    source_attention, prompt_attention: attention weights of the chunks so far.
    tokens: the reported tokens so far, unless a beam search keeps them.
    repetition: what repeats among those that were checked for loops; None until the first check.
    queue_seconds: time until it got its row.
    entered_at, entered_step: time, and number of the engine's step, of its first decoding step.
    """

    request: GenerationRequest
    prompt_ids: TokenIds
    max_new_tokens: int
    stop_ids: frozenset[int]
    has_own_stops: bool
    seed: int
    submitted_at: float
    deadline: float | None
    shortlist: Ids | None = None
    last_id: int | None = None
    model_processors: LogitsProcessors = NO_LOGITS_PROCESSORS
    selections: tuple[HeadSelection, ...] = ()
    alignment: HeadSelection | None = None
    step_attention: frozenset[AttentionKind] = field(init=False)
    source_attention: AttentionPieces = ()
    prompt_attention: list[AttentionPieces] = field(default_factory=list)
    tokens: OutputTokens = field(default_factory=OutputTokens)
    repetition: LoopDetector | None = None
    queue_seconds: float = 0.0
    entered_at: float = 0.0
    entered_step: int = 0

    def __post_init__(self) -> None:
        kinds = {each.kind for each in self.selections} - {AttentionKind.ENCODER}
        self.step_attention = frozenset(
            kinds if self.alignment is None else kinds | {AttentionKind.CROSS}
        )

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def prefix_ids(self) -> TokenIds:
        """Return the tokens that are given in advance: the prompt and the forced tokens."""
        return self.prompt_ids + self.request.forced_ids

    @property
    def input_ids(self) -> TokenIds:
        """Return the tokens that the model reads before it generates: the source, or the given
        tokens of a language model; none of a picture.
        """
        if self.request.picture is not None:
            return ()
        return self.prefix_ids if self.request.source_ids is None else self.request.source_ids

    @property
    def has_processors(self) -> bool:
        """Return whether scores may change before a token is chosen."""
        has_own = self.request.processors != NO_PROCESSORS
        return has_own or not self.model_processors.change_nothing

    @property
    def num_source_tokens(self) -> int:
        return len(self.request.source)

    @property
    def work(self) -> int:
        """Return an estimate of the cost in tokens: input tokens count once, generated tokens twice
        (Sheng et al. 2024, Fairness in Serving Large Language Models). A translation is assumed to
        have as many tokens as its source.
        """
        num_new = self.max_new_tokens
        if self.num_source_tokens:
            num_new = min(num_new, self.num_source_tokens)
        num_written = self.request.num_rows * (num_new + len(self.request.forced_ids))
        return self.num_source_tokens + len(self.prompt_ids) + 2 * num_written

    def returns_attention(self, kind: AttentionKind) -> bool:
        return any(each.kind is kind for each in self.selections)

    @property
    def ends_loops(self) -> bool:
        return self.request.ends_loops and self.request.beam is None

    def has_loop(self) -> bool:
        """Return whether the tokens so far loop, after reading those since the last check."""
        if not may_loop(self.tokens.ids):
            return False
        request = self.request
        if self.repetition is None:
            source_ids = request.source_ids or request.prompt_ids
            self.repetition = LoopDetector(source_ids, len(request.forced_ids))
        for token_id in self.tokens.ids[len(self.repetition) :]:
            self.repetition.push(token_id)
        return self.repetition.loop_start is not None

    @property
    def returns_logprobs(self) -> bool:
        request = self.request
        return request.returns_logprobs or request.logprobs is not None or request.beam is not None

    @property
    def needs_token_outputs(self) -> bool:
        """Return whether the request asks more of its tokens than ids and alignments, or as they
        come.
        """
        return self.request.streams or self.returns_logprobs or bool(self.selections)

    @property
    def needs_logp(self) -> bool:
        """Return whether tokens are not simply the likeliest ones, or are reported with
        log-probabilities.
        """
        request = self.request
        return (
            self.returns_logprobs
            or not request.sampling.is_greedy
            or self.has_processors
            or request.constraint is not None
        )

    def phase_seconds(self, ended_at: float) -> tuple[float, float]:
        """Return the seconds from its admission to its first step, and from there to its end."""
        prefill_seconds = self.entered_at - self.submitted_at - self.queue_seconds
        return prefill_seconds, ended_at - self.entered_at

    def finished_event(self, ending: Ending) -> FinishedEvent:
        """Return the final event."""
        return FinishedEvent(
            self.request_id,
            ending.hypotheses or (self._only_hypothesis(ending),),
            self.num_source_tokens,
            len(self.prefix_ids),
            ending.num_generated,
            self._last_pieces(ending.end_pieces),
            self.queue_seconds,
        )

    def encoded_event(self) -> FinishedEvent:
        """Return the final event of a source that is only encoded."""
        pieces = self._last_pieces(())
        return FinishedEvent(
            self.request_id, (), self.num_source_tokens, 0, 0, pieces, self.queue_seconds
        )

    def _only_hypothesis(self, ending: Ending) -> Hypothesis:
        logprobs = self.tokens.logprobs[len(self.request.forced_ids) :]
        if ending.stop_logprob is not None:
            logprobs.append(ending.stop_logprob)
        score = sum(logprobs) / max(len(logprobs), 1)
        stop = ending.stop_logprob, ending.stop_id
        return Hypothesis(self.tokens, score, ending.reason, *stop)

    def _last_pieces(self, end: AttentionPieces) -> AttentionPieces:
        """Join the pieces of the source with those of the last step; each query has only one of
        them.
        """
        if self.source_attention and end:
            pairs = zip(self.source_attention, end, strict=True)
            return tuple(source + last for source, last in pairs)
        return self.source_attention or end

    def failed_event(self, error: Exception) -> FailedEvent:
        return FailedEvent(self.request_id, error)

    def expired_event(self) -> FailedEvent:
        assert self.deadline is not None
        started = self.request.job_accepted_at
        started = self.submitted_at if started is None else started
        return self.failed_event(DeadlineExceeded(self.deadline - started))

    def aborted_event(self) -> AbortedEvent:
        return AbortedEvent(self.request_id)


ENCODE_STEP = 4
# With more padding, a second run is faster. For encoders whose linear layers skip padding, 32 gains
# 16 to 25 % and 64 up to 4 % more; recurrent encoders lose 5 % with 32, and 13 % with 64.
MOST_PADDING = 32


def encode_span(generation: Generation) -> int:
    """Return the padded length of a source that is encoded alone: a multiple of 4, then of larger
    steps, at most an eighth too long from 16 on. Pictures have one length and are not padded.
    """
    length = generation.num_source_tokens
    if generation.request.picture is not None:
        return length
    step = max(ENCODE_STEP, 1 << max(length - 1, 0).bit_length() >> 4)
    return -(-length // step) * step


def encode_groups(generations: list[Generation], most_tokens: int) -> Iterator[list[Generation]]:
    """Split generations into batches. A batch is padded to the span of its longest source, which is
    the last one, and has at most `most_tokens` tokens.
    """
    group: list[Generation] = []
    for generation in sorted(generations, key=encode_span):
        if group and not _joins(generation, group, most_tokens):
            yield group
            group = []
        group.append(generation)
    if group:
        yield group


def _joins(generation: Generation, group: list[Generation], most_tokens: int) -> bool:
    """Return whether a longer source can be encoded with the group with little padding."""
    span = encode_span(generation)
    padding = len(group) * (span - encode_span(group[-1]))
    return padding <= MOST_PADDING and (len(group) + 1) * span <= most_tokens
