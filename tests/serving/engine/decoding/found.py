"""Holds what a search found, so that it can be held against what another implementation finds."""

from collections.abc import Iterable

import pytest

from serving.request import FinishedEvent, FinishReason, TokenEvent
from tests.reference_models import EOS_ID
from tests.serving.engine.driving import Story

Found = list[tuple[list[int], float | None]]  # tokens with </s>, score


def found_in(story: Story) -> Found:
    assert isinstance(story.final, FinishedEvent)
    if not story.final.hypotheses:
        return [(with_end(story.tokens, story.final.reason), None)]
    return [(with_end(each.tokens, each.reason), each.score) for each in story.final.hypotheses]


def with_end(tokens: Iterable[TokenEvent], reason: FinishReason) -> list[int]:
    return [token.token_id for token in tokens] + [EOS_ID] * (reason is FinishReason.STOP)


def assert_alike(ours: Found, theirs: Found) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in theirs]
    for (_, score), (_, expected) in zip(ours, theirs, strict=True):
        assert score == (expected if expected is None else pytest.approx(expected, rel=1e-5))
