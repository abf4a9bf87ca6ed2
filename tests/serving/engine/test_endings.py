"""Bundles whose targets end with their stop token even where their length ends them."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.serving.engine.driving import Story, run_all, run_alone
from tests.serving.engine.toy import BOS, STOP, next_logp, toy_bundle, toy_graphs

MOST = 6
SOURCES = [(3 + number, 9, 14 + number) for number in range(12)]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"sampling": SamplingParams(temperature=1.5, seed=3)},
    "edited": {"processors": ProcessorParams(repetition_penalty=1.3)},
    "beam": {"beam": BeamParams(3, num_hypotheses=2)},
}


def toy_engine(forced_eos: int | None = STOP) -> Engine:
    bundle = toy_bundle()
    tokens = replace(bundle.manifest.tokens, forced_eos=forced_eos)
    bundle = replace(bundle, manifest=replace(bundle.manifest, tokens=tokens))
    return Engine(bundle, EngineConfig(slots=40, threads=1), toy_graphs())


def requests(**options: Any) -> list[GenerationRequest]:
    return [
        GenerationRequest(str(i), source, max_new_tokens=MOST, **options)
        for i, source in enumerate(SOURCES)
    ]


def finished_event_of(story: Story) -> FinishedEvent:
    assert isinstance(story.final, FinishedEvent)
    return story.final


@pytest.mark.parametrize("name", SEARCHES)
def test_what_comes_last_ends_the_text(name: str) -> None:
    stories = run_all(toy_engine(), requests(**SEARCHES[name]))
    ends = {number: finished_event_of(story) for number, story in stories.items()}
    long = [number for number, end in ends.items() if end.num_generated_tokens == MOST]
    assert long
    for number, end in ends.items():
        story = stories[number]
        assert end.best.stop_logprob is not None and end.best.stop_id == STOP
        assert len(story.tokens) == end.num_generated_tokens - 1
        assert end.reason is (FinishReason.LENGTH if number in long else FinishReason.STOP)
        target = (BOS, *story.token_ids)
        expected = next_logp(SOURCES[int(number)], target)[STOP]
        np.testing.assert_allclose(end.best.stop_logprob, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["greedy", "drawn", "edited"])
def test_all_before_it_is_as_ever(name: str) -> None:
    plain = run_all(toy_engine(None), requests(**SEARCHES[name]))
    stories = run_all(toy_engine(), requests(**SEARCHES[name]))
    for number, story in stories.items():
        assert story.said == plain[number].said[: MOST - 1]


def test_nothing_forbids_it() -> None:
    processors = ProcessorParams(min_tokens=MOST, allowed_ids=(5, 6))
    stories = run_all(toy_engine(), requests(processors=processors))
    for story in stories.values():
        assert len(story.tokens) == MOST - 1
        assert finished_event_of(story).reason is FinishReason.LENGTH


def test_a_request_without_ends_has_none() -> None:
    plain, stories = (
        run_all(toy_engine(forced), requests(ignore_eos=True)) for forced in (None, STOP)
    )
    for number, story in stories.items():
        assert story.said == plain[number].said and len(story.tokens) == MOST


def test_what_is_scored_is_left_alone() -> None:
    request = GenerationRequest("r", (5, 6), forced_ids=(4, 8, 9), max_new_tokens=0)
    plain, story = (run_alone(toy_engine(forced), request) for forced in (None, STOP))
    assert story.said == plain.said and story.final == plain.final


def test_a_single_token_is_the_end() -> None:
    story = run_alone(toy_engine(), GenerationRequest("r", (5, 6), max_new_tokens=1))
    assert story.token_ids == [] and finished_event_of(story).num_generated_tokens == 1
