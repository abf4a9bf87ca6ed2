"""Finds alternatives at a position: the likeliest tokens after a prefix each become a prefix."""

from collections.abc import Sequence
from typing import Any

from serving.pipelines.translation.hypotheses import successful_end
from serving.pipelines.translation.planning import TranslationPlan
from serving.request import Event, TokenEvent
from serving.text.tokenizer import Tokenizer


def with_alternative_prefixes(
    plan: TranslationPlan, outcomes: Sequence[Sequence[Event]], count: int, tokenizer: Tokenizer
) -> TranslationPlan:
    """Return the plan with several prefixes for the first segment of each text.

    outcomes: of the plan's probes, see `TranslationRequests`.
    count: of translations that are wanted; there are up to two prefixes for each, as some lead to
        the same text in other tokens.
    """
    longer: dict[int, dict[str, Any]] = {}
    for number, events in zip(plan.first_segments, outcomes, strict=True):
        prefix = plan.segments[number].prefixes[0]
        words = _next_words(events, tokenizer)[: 2 * count]
        longer[number] = {"prefixes": tuple((*prefix, word) for word in words) or (prefix,)}
    return plan.with_changes(longer)


def _next_words(events: Sequence[Event], tokenizer: Tokenizer) -> list[int]:
    """Return the tokens with some text that may come next, likeliest first."""
    successful_end(events)
    [*_, last] = (event for event in events if isinstance(event, TokenEvent))
    ids = [token.token_id for token in last.top]
    return [token_id for token_id in ids if tokenizer.token_bytes(token_id).strip()]
