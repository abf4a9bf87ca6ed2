"""Tests what a hypotheses of finished hypotheses keeps, and when it says that a search may stop."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from serving.engine.decoding.beam_hypotheses import LEAST_COVERAGE, BeamHypotheses, Node
from serving.engine.decoding.beam_search import Beam, start_group
from serving.engine.generation import Generation
from serving.requests.parameters import BeamParams
from serving.requests.request import FinishReason, GenerationRequest, TokenEvent

STOP = 2


def token(*attention: float) -> TokenEvent:
    return TokenEvent("r", 5, -0.5, alignment=np.array(attention, np.float32))


def test_coverage_is_added_to_the_score() -> None:
    hypotheses = BeamHypotheses(
        BeamParams(2, coverage_penalty=0.5, length_penalty=2.0), max_new_tokens=9
    )
    node = Node(token(0.25, 0.75, 0.0), Node(token(0.25, 0.75, 0.0), None))

    finished = hypotheses.score_hypothesis(
        -3.0, 3, node, FinishReason.STOP, end=token(0.25, 0.75, 0.0)
    )

    coverage = math.log(0.75) + math.log(1.0) + math.log(LEAST_COVERAGE)
    assert finished.score == pytest.approx(-3.0 / 9 + 0.5 * coverage)


def test_coverage_ranks() -> None:
    hypotheses = BeamHypotheses(BeamParams(2, coverage_penalty=1.0), max_new_tokens=9)
    likely = hypotheses.score_hypothesis(
        -1.0, 1, Node(token(1.0, 0.1), None), FinishReason.STOP, token(0.9, 0.1)
    )
    covering = hypotheses.score_hypothesis(
        -2.0, 1, Node(token(0.5, 0.5), None), FinishReason.STOP, token(0.5, 0.5)
    )

    assert hypotheses.add([likely, covering]).finished == (covering, likely)


@pytest.mark.parametrize("early_stopping", [False, "never"])
@pytest.mark.parametrize("coverage_penalty", [0.0, 5.0])
def test_coverage_does_not_keep_a_search_going(
    early_stopping: bool | Literal["never"], coverage_penalty: float
) -> None:
    """However badly all that has finished covers the source, less likely beams do not go on."""
    params = BeamParams(
        2,
        early_stopping=early_stopping,
        length_penalty=0.0,
        coverage_penalty=coverage_penalty,
    )
    hypotheses = BeamHypotheses(params, max_new_tokens=99)
    half = token(1.0, 0.001)
    hypotheses = hypotheses.add(
        [
            hypotheses.score_hypothesis(logprob, 1, Node(half, None), FinishReason.STOP, half)
            for logprob in (-1.0, -2.0)
        ]
    )

    assert hypotheses.is_final(-2.5, 2)
    assert not hypotheses.is_final(-1.5, 2)


@pytest.mark.parametrize(("coverage_penalty", "num_going_on"), [(0.0, 1), (0.5, 2)])
def test_only_what_can_no_longer_rank_is_given_up(
    coverage_penalty: float, num_going_on: int
) -> None:
    """A less likely beam may still cover the source better than what has finished."""
    params = BeamParams(
        2, length_penalty=0.0, early_stopping="never", coverage_penalty=coverage_penalty
    )
    request = GenerationRequest("r", (3, 4), beam=params)
    generation = Generation(request, (1,), 20, frozenset({STOP}), False, 0, 0.0, None)

    def event_of(row: int, token_id: int) -> TokenEvent:
        return TokenEvent("r", token_id, -0.5, alignment=np.array([0.9, 0.1], np.float32))

    group = start_group(generation, row=0)
    first = group.expand([(-1.0, 0, STOP), (-2.0, 0, 7), (-3.0, 0, 8)], event_of)
    assert len(first.continuing) == 2
    group = replace(group, hypotheses=first.hypotheses, beams=(Beam(0), Beam(1)), num_generated=1)
    second = group.expand([(-1.5, 1, 6), (-2.0, 0, STOP), (-2.1, 0, 5)], event_of)
    assert len(second.continuing) == num_going_on
