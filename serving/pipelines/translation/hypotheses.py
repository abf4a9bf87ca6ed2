"""Reads the engine's events as hypotheses: translations of one segment, still in tokens."""

from collections.abc import Sequence

from serving.pipelines.engine_port import raise_failure
from serving.request import Event, FinishedEvent, Hypothesis, TokenEvent


def successful_end(events: Sequence[Event]) -> FinishedEvent:
    """Return the last event of a request that ended as it should; raise what it failed with."""
    end = events[-1]
    if not isinstance(end, FinishedEvent):
        assert not isinstance(end, TokenEvent), "a request's last event is final"
        raise_failure(end)
    return end


def ranked_hypotheses(events: Sequence[Event], num_forced: int) -> tuple[Hypothesis, ...]:
    """Return the hypotheses of a beam search, best first; without one, what was generated, whose
    score is the mean log-probability of the tokens after the first `num_forced`.
    """
    end = successful_end(events)
    if end.hypotheses:
        return end.hypotheses
    tokens = tuple(event for event in events if isinstance(event, TokenEvent))
    logprobs = [token.logprob for token in tokens[num_forced:]]
    if end.stop_logprob is not None:
        logprobs.append(end.stop_logprob)
    score = sum(logprobs) / max(len(logprobs), 1)
    return (Hypothesis(tokens, score, end.reason, end.stop_logprob),)
