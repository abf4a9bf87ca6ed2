"""Holds what a search found, so that it can be held against what another implementation finds."""

import pytest

from serving.requests.request import FinishedEvent, FinishReason
from tests.reference_models import EOS_ID
from tests.serving.engine.driving import Story

Found = list[tuple[list[int], float | None]]  # tokens with </s>, score


def found_in(story: Story) -> Found:
    assert isinstance(story.final, FinishedEvent)
    return [
        (with_end(hypothesis.tokens.ids, hypothesis.reason), hypothesis.score)
        for hypothesis in story.final.hypotheses
    ]


def with_end(ids: list[int], reason: FinishReason) -> list[int]:
    return ids + [EOS_ID] * (reason is FinishReason.STOP)


def assert_alike(ours: Found, theirs: Found) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in theirs]
    for (_, score), (_, expected) in zip(ours, theirs, strict=True):
        if expected is not None:
            assert score == pytest.approx(expected, rel=1e-5)
