"""Compare the hypotheses of a search with those of another implementation."""

import pytest

from serving.requests.request import FinishedEvent, FinishReason
from tests.reference_models import EOS_ID
from tests.serving.engine.driving import Story

Hypotheses = list[tuple[list[int], float | None]]  # tokens with </s>, score


def hypotheses_of(story: Story) -> Hypotheses:
    assert isinstance(story.final, FinishedEvent)
    return [
        (with_end(hypothesis.tokens.ids, hypothesis.reason), hypothesis.score)
        for hypothesis in story.final.hypotheses
    ]


def with_end(ids: list[int], reason: FinishReason) -> list[int]:
    return ids + [EOS_ID] * (reason is FinishReason.STOP)


def assert_alike(ours: Hypotheses, theirs: Hypotheses) -> None:
    assert [ids for ids, _ in ours] == [ids for ids, _ in theirs]
    for (_, score), (_, expected) in zip(ours, theirs, strict=True):
        if expected is not None:
            assert score == pytest.approx(expected, rel=1e-5)
