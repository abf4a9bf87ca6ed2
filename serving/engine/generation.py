"""Describes a request in progress: the engine's own view of it."""

from dataclasses import dataclass

from serving.errors import DeadlineExceeded
from serving.parameters import TokenIds
from serving.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
    Hypothesis,
    Ids,
)


@dataclass(slots=True, eq=False)
class Generation:
    """prompt_ids: the bundle's prefix and the request's prompt. max_new_tokens: within the bundle's
    limits. deadline: None or a time of `time.perf_counter`. shortlist: i64, ascending; None for the
    whole vocabulary. last_id: what the last of `max_new_tokens` must be; None if it may be any.
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

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def given_ids(self) -> TokenIds:
        """List everything that is given in advance: the prompt and the forced tokens."""
        return self.prompt_ids + self.request.forced_ids

    @property
    def num_source_tokens(self) -> int:
        return len(self.request.source_ids or ())

    @property
    def num_given_tokens(self) -> int:
        return self.num_source_tokens + len(self.given_ids)

    @property
    def needs_attention(self) -> bool:
        beam = self.request.beam
        return self.request.wants_attention or (beam is not None and beam.coverage_penalty > 0)

    def finished(
        self,
        reason: FinishReason,
        num_generated: int,
        stop_logprob: float | None = None,
        hypotheses: tuple[Hypothesis, ...] = (),
    ) -> FinishedEvent:
        return FinishedEvent(
            self.request_id,
            reason,
            self.num_source_tokens,
            len(self.given_ids),
            num_generated,
            stop_logprob,
            hypotheses,
        )

    def failed(self, error: Exception) -> FailedEvent:
        return FailedEvent(self.request_id, error)

    def expired(self) -> FailedEvent:
        return self.failed(DeadlineExceeded(self.request.timeout_seconds or 0.0))

    def aborted(self) -> AbortedEvent:
        return AbortedEvent(self.request_id)
