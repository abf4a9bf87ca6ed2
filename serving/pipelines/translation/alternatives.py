"""Other ways to go on after the beginning of a translation, for somebody who chooses among them.

A probe reports the likeliest tokens after the beginning, and within the word that the model would
write there. Each way to begin is then a prefix that is translated to its end.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import log
from typing import Any

from serving.pipelines.decoding import require_finished
from serving.pipelines.translation.job import Rendering
from serving.pipelines.translation.plan import TranslationPlan
from serving.requests.parameters import TokenIds
from serving.requests.request import FinalEvent, FinishedEvent
from serving.text.tokenizer import Tokenizer

# Ways less likely than this share of the model's own are mostly wrong: looked at word by word in
# translations from English into Portuguese and French.
_LEAST_SHARE = 1 / 1000


def with_alternative_prefixes(
    plan: TranslationPlan, outcomes: Sequence[FinalEvent], count: int, tokenizer: Tokenizer
) -> TranslationPlan:
    """Return the plan with several prefixes for the first segment of each text.

    outcomes: of the plan's probes, see `TranslationRequests`.
    count: number of translations wanted. There are up to two prefixes for each, because some lead
        to the same text in other tokens.
    """
    longer: dict[int, dict[str, Any]] = {}
    for number, end in zip(plan.first_segments, outcomes, strict=True):
        prefix = plan.segments[number].prefixes[0]
        openings = sorted(_openings(end, len(prefix), tokenizer), key=_unlikeliness_of_opening)
        prefixes = tuple((*prefix, *ids) for _, ids in openings[: 2 * count])
        longer[number] = {"prefixes": prefixes or (prefix,)}
    return plan.with_changes(longer)


def _unlikeliness_of_opening(opening: tuple[float, TokenIds]) -> float:
    return -opening[0]


def _openings(
    end: FinalEvent, num_forced: int, tokenizer: Tokenizer
) -> Iterator[tuple[float, TokenIds]]:
    """Yield beginnings of the next word that have text, each with its log-probability.

    num_forced: number of forced tokens at the start of the probe's output.
    """
    path: TokenIds = ()
    logprob = 0.0
    described = require_finished(end).best.tokens.iter_tokens()
    for token_id, token_logprob, top_tokens in islice(described, num_forced, None):
        if path and _is_between_words(path[-1], token_id, tokenizer):
            return
        for token in top_tokens:
            # After the first token, the likeliest path is that token's own way.
            is_new = not path or token.token_id != token_id
            if is_new and tokenizer.token_bytes(token.token_id).strip():
                yield logprob + token.logprob, (*path, token.token_id)
        path, logprob = (*path, token_id), logprob + token_logprob


def _is_between_words(before: int, after: int, tokenizer: Tokenizer) -> bool:
    last, first = tokenizer.token_bytes(before)[-1:], tokenizer.token_bytes(after)[:1]
    return last.isspace() or first.isspace()


def select_likely(ends: Sequence[FinishedEvent]) -> list[FinishedEvent]:
    """Return the model's own way, which is the first, and those that are nearly as likely as it.

    ends: of the same source with different prefixes, all with log-probabilities.
    """
    first, *others = ends
    least = _logprob(first) + log(_LEAST_SHARE)
    return [first, *sorted((end for end in others if _logprob(end) >= least), key=_unlikeliness)]


def _logprob(end: FinishedEvent) -> float:
    return sum(end.best.tokens.logprobs) + (end.best.stop_logprob or 0.0)


def _unlikeliness(end: FinishedEvent) -> float:
    return -_logprob(end)


def drop_same_wording(renderings: Iterable[Rendering]) -> list[Rendering]:
    """Return those that differ in more than case, spaces and punctuation from all before them."""
    distinct: dict[str, Rendering] = {}
    for rendering in renderings:
        letters = "".join(filter(str.isalnum, rendering.text.casefold()))
        distinct.setdefault(letters or rendering.text, rendering)
    return [*distinct.values()]
