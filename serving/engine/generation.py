"""A request in progress, and how it ends."""

from dataclasses import dataclass, field

from serving.bundle.manifest import NO_LOGITS_PROCESSORS, AttentionKind, LogitsProcessors
from serving.engine.attention_query import HeadSelection
from serving.engine.decoding.repetition import LoopDetector, may_loop
from serving.errors import DeadlineExceeded
from serving.requests.parameters import NO_PROCESSORS, TokenIds
from serving.requests.request import (
    AttentionPieces,
    Encoding,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    Ids,
    Media,
    OutputTokens,
)

NO_ATTENTION: frozenset[AttentionKind] = frozenset()


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
    source_attention, prompt_attention: attention weights of the chunks so far.
    scored_logprobs: log-probabilities of the request's `scored_ids`; empty until they are scored.
    tokens: the reported tokens so far, unless a beam search keeps them.
    loop_detector: what repeats among those that were checked for loops; None until the first check.
    queue_seconds: time until it got its row.
    entered_at, entered_step: time, and number of the engine's step, of its first decoding step.

    The other fields follow from these, and are computed once:

    prefix_ids: the target tokens that are not chosen: the prompt and the forced tokens.
    num_source_tokens, num_rows, job: of the request.
    work: an estimate of the cost in tokens: input tokens count once, generated tokens twice (Sheng
        et al. 2024, Fairness in Serving Large Language Models). A translation is assumed to have as
        many tokens as its source.
    step_attention: the kinds of attention that its steps must output.
    has_processors: whether scores may change before a token is chosen.
    ends_loops: whether it ends when its tokens loop.
    returns_logprobs: whether log-probabilities are reported, or rank hypotheses.
    needs_token_outputs: whether the request asks more of its tokens than ids and alignments, or as
        they come.
    needs_logp: whether tokens are not simply the likeliest ones, or log-probabilities are reported.
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
    source_attention: AttentionPieces = ()
    prompt_attention: list[AttentionPieces] = field(default_factory=list)
    scored_logprobs: tuple[float, ...] = ()
    tokens: OutputTokens = field(default_factory=OutputTokens)
    loop_detector: LoopDetector | None = None
    queue_seconds: float = 0.0
    entered_at: float = 0.0
    entered_step: int = 0
    request_id: str = field(init=False)
    prefix_ids: TokenIds = field(init=False)
    num_source_tokens: int = field(init=False)
    num_rows: int = field(init=False)
    job: str = field(init=False)
    work: int = field(init=False)
    step_attention: frozenset[AttentionKind] = field(init=False, default=NO_ATTENTION)
    has_processors: bool = field(init=False)
    ends_loops: bool = field(init=False)
    returns_logprobs: bool = field(init=False)
    needs_token_outputs: bool = field(init=False)
    needs_logp: bool = field(init=False)

    def __post_init__(self) -> None:
        request, is_beam = self.request, self.request.beam is not None
        self.request_id = request.request_id
        self.prefix_ids = self.prompt_ids + request.forced_ids
        self.num_source_tokens = num_source_tokens = len(request.source)
        self.num_rows, self.job = request.num_rows, request.job
        num_new = min(self.max_new_tokens, num_source_tokens or self.max_new_tokens)
        num_written = self.num_rows * (num_new + len(request.forced_ids))
        self.work = num_source_tokens + len(self.prompt_ids) + 2 * num_written
        if self.selections or self.alignment is not None:
            kinds = {
                selection.kind for selection in (*self.selections, self.alignment) if selection
            }
            self.step_attention = frozenset(kinds - {AttentionKind.ENCODER})
        has_own_processors = request.processors is not NO_PROCESSORS and (
            request.processors != NO_PROCESSORS
        )
        self.has_processors = has_own_processors or not self.model_processors.change_nothing
        self.ends_loops = request.ends_loops and not is_beam
        self.returns_logprobs = request.returns_logprobs or request.logprobs is not None or is_beam
        self.needs_token_outputs = request.streams or self.returns_logprobs or bool(self.selections)
        self.needs_logp = (
            self.returns_logprobs
            or not request.sampling.is_greedy
            or self.has_processors
            or request.constraint is not None
            or bool(request.scored_ids)
        )

    @property
    def input_ids(self) -> TokenIds:
        """Return the tokens that the model reads before it generates: the source, or the prompt and
        forced tokens of a language model; none of a picture or of sound.
        """
        if isinstance(self.request.source, Media):
            return ()
        return self.prefix_ids if self.request.source_ids is None else self.request.source_ids

    def returns_attention(self, kind: AttentionKind) -> bool:
        return any(selection.kind is kind for selection in self.selections)

    def has_loop(self) -> bool:
        """Return whether the tokens so far loop, after reading those since the last check."""
        if not may_loop(self.tokens.ids):
            return False
        request = self.request
        if self.loop_detector is None:
            source_ids = request.source_ids or request.prompt_ids
            self.loop_detector = LoopDetector(source_ids, len(request.forced_ids))
        for token_id in self.tokens.ids[len(self.loop_detector) :]:
            self.loop_detector.push(token_id)
        return self.loop_detector.loop_start is not None

    def finished_event(self, ending: Ending, ended_at: float, num_steps: int) -> FinishedEvent:
        """Return the final event of a request that ends at a time, after a number of steps."""
        hypotheses = ending.hypotheses
        if not hypotheses:
            logprobs = self.tokens.logprobs[len(self.request.forced_ids) :]
            if ending.stop_logprob is not None:
                logprobs.append(ending.stop_logprob)
            score = sum(logprobs) / max(len(logprobs), 1)
            stop = ending.stop_logprob, ending.stop_id
            hypotheses = (Hypothesis(self.tokens, score, ending.reason, *stop),)
        pieces = self.source_attention or ending.end_pieces
        if self.source_attention and ending.end_pieces:  # each query has only one of them
            pairs = zip(self.source_attention, ending.end_pieces, strict=True)
            pieces = tuple(source + last for source, last in pairs)
        return FinishedEvent(
            self.request_id,
            hypotheses,
            self.num_source_tokens,
            len(self.prefix_ids),
            ending.num_generated,
            pieces,
            self.scored_logprobs,
            queue_seconds=self.queue_seconds,
            prefill_seconds=self.entered_at - self.submitted_at - self.queue_seconds,
            decode_seconds=ended_at - self.entered_at,
            num_steps=num_steps,
        )

    def encoded_event(self, encoding: Encoding, seconds: float) -> FinishedEvent:
        """Return the final event of a source that is only encoded, which took these seconds."""
        return FinishedEvent(
            self.request_id,
            (),
            self.num_source_tokens,
            0,
            0,
            self.source_attention,
            queue_seconds=self.queue_seconds,
            prefill_seconds=seconds,
            encoding=encoding,
        )

    def expired_event(self) -> FailedEvent:
        assert self.deadline is not None
        started = self.request.job_accepted_at
        started = self.submitted_at if started is None else started
        return FailedEvent(self.request_id, DeadlineExceeded(self.deadline - started))
