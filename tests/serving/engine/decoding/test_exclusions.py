"""Tokens that no search chooses of itself: padding of a vocabulary, and holes in it."""

from dataclasses import replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from serving.engine.config import EngineConfig
from serving.engine.decoding.logits_processors import Exclusions
from serving.engine.engine import Engine
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import GenerationRequest
from tests.serving.engine.decoding.naive_sampling import distribution
from tests.serving.engine.decoding.test_sampling import (
    FILTERS,
    assert_draws_follow,
    random_logp,
    sampling_params,
    scores_of,
)
from tests.serving.engine.driving import run_all, run_alone
from tests.serving.engine.toy import STOP, VOCAB_SIZE, toy_bundle, toy_graphs

HOLES = (0, 7, 8, 20, 41)
PADDING = tuple(range(30, VOCAB_SIZE))
EXCLUDED = (*HOLES[:4], *PADDING)
SOURCES = [(3 + number, 9, 14 + number) for number in range(12)]
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beam": BeamParams(3, num_hypotheses=2)},
    "wide beam": {"beam": BeamParams(10, length_penalty=0.5)},
    "drawn": {"sampling": SamplingParams(temperature=1.5, seed=3)},
    "filtered": {"sampling": SamplingParams(temperature=1.0, top_p=0.8, top_k=9, seed=3)},
}


def toy_engine(excluded_ids: tuple[int, ...] = EXCLUDED, has_shortlist: bool = False) -> Engine:
    bundle = toy_bundle(has_shortlist=has_shortlist)
    return Engine(bundle, EngineConfig(slots=40, threads=1), toy_graphs(), excluded_ids)


def requests(**options: Any) -> list[GenerationRequest]:
    return [
        GenerationRequest(str(i), source, max_new_tokens=12, **options)
        for i, source in enumerate(SOURCES)
    ]


@pytest.mark.parametrize("has_shortlist", [False, True])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
def test_no_search_chooses_them(search: dict[str, Any], has_shortlist: bool) -> None:
    plain = run_all(toy_engine((), has_shortlist), requests(**search))
    assert {i for story in plain.values() for i in story.token_ids} & {*EXCLUDED}

    stories = run_all(toy_engine(has_shortlist=has_shortlist), requests(**search))

    assert not {i for story in stories.values() for i in story.token_ids} & {*EXCLUDED}


@pytest.mark.parametrize("has_shortlist", [False, True])
@pytest.mark.parametrize("name", ["greedy", "beam", "wide beam"])
def test_searches_go_on_as_if_they_were_banned(name: str, has_shortlist: bool) -> None:
    words = ProcessorParams(bad_words=tuple((token_id,) for token_id in EXCLUDED))
    banned = run_all(toy_engine((), has_shortlist), requests(processors=words, **SEARCHES[name]))
    stories = run_all(toy_engine(has_shortlist=has_shortlist), requests(**SEARCHES[name]))
    for number, story in stories.items():
        assert story.said == banned[number].said


@pytest.mark.parametrize(("filters", "spread"), [*zip(FILTERS, cycle([0.5, 3.0]))], ids=str)
def test_draws_follow_the_distribution_of_all_others(
    filters: dict[str, float], spread: float
) -> None:
    logp = random_logp(np.random.default_rng(5), 150, spread)
    excluded = [3, *np.argsort(-logp)[[0, 4, 30]].tolist(), *range(120, 150)]
    scores = scores_of(np.tile(logp, (500, 1)))
    manifest = replace(toy_bundle().manifest, vocab_size=150)

    Exclusions(manifest, excluded).apply(scores)

    logp[excluded] = -np.inf
    assert_draws_follow(scores, filters, distribution(logp, sampling_params(filters)))


def test_the_likeliest_tokens_are_told_whatever_they_are() -> None:
    plain, stories = (
        run_all(toy_engine(excluded), requests(logprobs=8)) for excluded in ((), EXCLUDED)
    )
    firsts = {name: story.tokens.top[0] for name, story in stories.items()}
    assert firsts == {name: story.tokens.top[0] for name, story in plain.items()}
    assert {token.token_id for top in firsts.values() for token in top} & {*EXCLUDED}


@pytest.mark.parametrize("has_shortlist", [False, True])
@pytest.mark.parametrize("search", SEARCHES.values(), ids=list(SEARCHES))
def test_a_request_gets_those_that_it_names(search: dict[str, Any], has_shortlist: bool) -> None:
    engine = toy_engine(has_shortlist=has_shortlist)
    for processors in (
        ProcessorParams(allowed_ids=(33, 35)),
        ProcessorParams(logit_bias=((33, 100.0), (35, 100.0))),
    ):
        stories = run_all(engine, requests(processors=processors, **search))
        said = {i for story in stories.values() for i in story.token_ids}
        assert said == {33, 35}


def test_what_only_lowers_a_token_does_not_ask_for_it() -> None:
    lowered = requests(processors=ProcessorParams(logit_bias=((33, -0.001),)))
    stories = run_all(toy_engine(), lowered)
    assert not any(33 in story.token_ids for story in stories.values())


@pytest.mark.parametrize("has_shortlist", [False, True])
def test_forced_ones_have_the_models_own_log_probabilities(has_shortlist: bool) -> None:
    request = GenerationRequest("r", (5, 6), forced_ids=(33, 4, 20), max_new_tokens=0)
    plain, story = (
        run_alone(toy_engine(excluded, has_shortlist), request) for excluded in ((), EXCLUDED)
    )
    assert story.said == plain.said and story.token_ids == [33, 4, 20]


def test_what_ends_targets_is_never_excluded() -> None:
    plain, stories = (run_all(toy_engine(ids), requests()) for ids in ((), (STOP,)))
    assert {n: story.said for n, story in stories.items()} == {
        n: story.said for n, story in plain.items()
    }


def test_a_row_of_which_all_is_banned_has_a_dead_end() -> None:
    others = [i for i in range(VOCAB_SIZE) if i not in {*EXCLUDED, STOP}]
    words = ProcessorParams(bad_words=tuple((i,) for i in others), min_tokens=1)
    request = GenerationRequest("r", (5, 6), processors=words)
    plain_words = replace(words, bad_words=tuple((i,) for i in (*others, *EXCLUDED)))
    plain = run_alone(toy_engine(()), replace(request, processors=plain_words))
    assert run_alone(toy_engine(), request).final == plain.final
