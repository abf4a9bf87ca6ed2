"""The device that tests over real graphs run on: the CPU, or a GPU that is asked for.

    ATTENDANT_TEST_DEVICE=cuda pytest tests/serving/engine/test_company.py

A CPU gives every request the same bits in any company. A GPU adds up in another order for batches
of other sizes, so that there outputs part where two tokens were about equally likely; all that they
say before must be near, to the rounding of half precision.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from serving.bundle.manifest import Precision
from serving.engine.config import Device, EngineConfig
from serving.requests.request import FinishedEvent, GenerationRequest
from tests.gpu.host import load_cuda_libraries
from tests.serving.engine.driving import Story, comparable_story

DEVICE = cast(Device, os.environ.get("ATTENDANT_TEST_DEVICE", "cpu"))
PRECISIONS = [Precision.FP32, Precision.INT8] if DEVICE == "cpu" else [Precision.FP16]
NEAR = 0.05  # nats
MOST_PARTED_DRAWS = 0.2  # by number: nothing says of a draw how near another token was

if DEVICE == "cuda":
    load_cuda_libraries()

cpu_only = pytest.mark.skipif(DEVICE != "cpu", reason="compares with what fp32 computes on a CPU")


def config_of(slots: int, **sizes: Any) -> EngineConfig:
    return EngineConfig(slots=slots, threads=1, device=DEVICE, **sizes)


def assert_alike(
    requests: Iterable[GenerationRequest],
    actual: Mapping[str, Story],
    expected: Mapping[str, Story],
) -> None:
    """Every request said what it says otherwise."""
    pairs = [(each, actual[each.request_id], expected[each.request_id]) for each in requests]
    if DEVICE == "cpu":
        for request, story, other in pairs:
            assert comparable_story(story) == comparable_story(other), request.request_id
    else:
        assert_near(pairs)


def assert_near(pairs: Iterable[tuple[GenerationRequest, Story, Story]]) -> None:
    draws = []
    for request, story, other in pairs:
        assert isinstance(story.final, FinishedEvent), (request.request_id, story.final)
        assert isinstance(other.final, FinishedEvent)
        is_drawn = request.sampling.temperature > 0
        has_parted = parts_after_near(story, other, is_greedy=not is_drawn and not request.beam)
        if is_drawn:
            draws.append(has_parted)
        if request.beam:
            scores = [final.hypotheses[0].score for final in (story.final, other.final)]
            assert scores[0] == pytest.approx(scores[1], abs=NEAR), request.request_id
    assert sum(draws) <= max(1, MOST_PARTED_DRAWS * len(draws)), f"{sum(draws)} of {len(draws)}"


def parts_after_near(story: Story, other: Story, *, is_greedy: bool) -> bool:
    """Whether two outputs part; all before must be near, and greedy ones part at near ties."""
    for one, two in zip(story.said, other.said, strict=False):
        if one[0] != two[0]:
            assert not is_greedy or abs(one[1] - two[1]) <= NEAR, (one, two)
            return True
        assert abs(one[1] - two[1]) <= NEAR, (one, two)
    return len(story.tokens) != len(other.tokens)
