"""Alternatives at a position: the likeliest tokens after a prefix, each as a prefix of its own."""

from collections.abc import Sequence
from typing import Any

from serving.parameters import ProcessorParams
from serving.pipelines.jobs import TranslationJob
from serving.pipelines.translation.candidates import successful_end
from serving.pipelines.translation.planning import Plan
from serving.request import MAX_LOGPROBS, Event, GenerationRequest, TokenEvent
from serving.text.tokenizer import Tokenizer

# A stop token would end the request without being reported, and those after it with it.
_BEFORE_ANY_STOP = ProcessorParams(min_tokens=1)


def probes(job: TranslationJob, plan: Plan) -> list[GenerationRequest]:
    """What comes after the prefix of the first segment of each text?"""
    return [
        GenerationRequest(
            f"{job.request_id}-next-{number}",
            source_ids=plan.segments[number].source_ids,
            forced_ids=plan.segments[number].prefixes[0],
            max_new_tokens=1,
            logprobs=MAX_LOGPROBS,
            processors=_BEFORE_ANY_STOP,
            priority=job.decoding.priority,
            timeout_seconds=job.decoding.timeout_seconds,
        )
        for number in plan.first_segments
    ]


def branched(
    plan: Plan, outcomes: Sequence[Sequence[Event]], count: int, tokenizer: Tokenizer
) -> Plan:
    """The plan with so many prefixes of those segments, as their probes came out."""
    longer: dict[int, dict[str, Any]] = {}
    for number, events in zip(plan.first_segments, outcomes, strict=True):
        prefix = plan.segments[number].prefixes[0]
        words = _next_words(events, tokenizer)[:count]
        longer[number] = {"prefixes": tuple((*prefix, word) for word in words) or (prefix,)}
    return plan.with_changes(longer)


def _next_words(events: Sequence[Event], tokenizer: Tokenizer) -> list[int]:
    """The tokens with some text that may come next, likeliest first."""
    successful_end(events)
    [*_, last] = (event for event in events if isinstance(event, TokenEvent))
    ids = [token.token_id for token in last.top]
    return [token_id for token_id in ids if tokenizer.token_bytes(token_id).strip()]
