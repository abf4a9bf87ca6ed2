"""A request says the same bytes with and without drafts, whatever becomes of them."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from serving.bundle.manifest import Precision
from serving.bundle.opening import Bundle, open_bundle
from serving.engine.config import EngineConfig
from serving.engine.decoding.speculative_decoding import MAX_ROWS, Costs
from serving.engine.engine import Engine
from serving.engine.runtime.session import open_graphs
from serving.engine.scheduling.admission import SharedParts
from serving.engine.scheduling.fair_queue import JobSize
from serving.errors import DeadlineExceeded, EngineError
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
)
from tests.serving.engine.driving import (
    Story,
    comparable_story,
    record_events,
    run_all,
    run_alone,
    run_as_they_come,
)
from tests.serving.engine.test_company import ASKS
from tests.tiny import tiny_bundle

CAPACITY = 96


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.INT8])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("bundles")
    return open_bundle(tiny_bundle("llama", folder, request.param, context_length=CAPACITY))


@pytest.fixture(autouse=True)
def _every_draft_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Costs, "is_worthwhile", lambda self, num_rows, num_expected: num_expected > 0
    )


def engine_of(bundle: Bundle, *, drafts: bool, slots: int = 16, **sizes: Any) -> Engine:
    return Engine(bundle, EngineConfig(slots, 1, speculation=drafts, **sizes))


def repeating(number: int, length: int = 24) -> tuple[int, ...]:
    """A prompt that says everything twice, and almost the same."""
    phrase = [3 + (7 * number + j * j) % 250 for j in range(length // 2)]
    return (*phrase, *phrase[:-1], 9)


def asking(number: int, name: str, **fields: Any) -> GenerationRequest:
    options = {"max_new_tokens": 30, "ignore_eos": True} | fields
    return GenerationRequest(f"{number} {name}", None, repeating(number), **options)


def all_kinds() -> list[GenerationRequest]:
    searched = {name for name, ask in ASKS.items() if "beam" in ask}
    return [
        asking(i, name, **ask) for i, (name, ask) in enumerate(ASKS.items()) if name not in searched
    ]


class Counted:
    """Drives an engine and counts what was drafted."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.num_drafted = self.num_accepted = 0

    def run(self, requests: Iterable[GenerationRequest]) -> dict[str, object]:
        self.engine.submit(*requests)
        stories: dict[str, Story] = {}
        while self.engine.has_work:
            record_events(stories, self.engine.step())
            self.num_drafted += self.engine.step_stats.num_drafted_tokens
            self.num_accepted += self.engine.step_stats.num_accepted_tokens
        assert self.engine.stats().num_rows == 0
        return {name: comparable_story(story) for name, story in stories.items()}


@pytest.mark.parametrize("slots", [1, 3, MAX_ROWS])
def test_all_kinds_of_requests_say_the_same_with_drafts(bundle: Bundle, slots: int) -> None:
    requests = all_kinds()
    plain = Counted(engine_of(bundle, drafts=False))
    drafting = Counted(engine_of(bundle, drafts=True, slots=slots))
    assert drafting.run(requests) == plain.run(requests)
    assert 0 < drafting.num_accepted < drafting.num_drafted and plain.num_drafted == 0


def test_beams_in_the_batch_keep_it_from_drafting(bundle: Bundle) -> None:
    beam = asking(0, "beam", beam=BeamParams(2), max_new_tokens=8)
    requests = [beam, asking(1, "greedy"), asking(1, "drawn", **ASKS["drawn"])]
    engine = engine_of(bundle, drafts=True)
    engine.submit(*requests)
    stories: dict[str, Story] = {}
    while beam.request_id not in stories:
        record_events(stories, engine.step())
        assert engine.step_stats.num_drafted_tokens == 0
    num_accepted = 0
    while engine.has_work:
        record_events(stories, engine.step())
        num_accepted += engine.step_stats.num_accepted_tokens
    assert num_accepted
    expected = Counted(engine_of(bundle, drafts=False)).run(requests)
    assert {name: comparable_story(story) for name, story in stories.items()} == expected


def test_rows_come_and_go_as_they_please(bundle: Bundle) -> None:
    random = np.random.default_rng(0)
    requests = [replace(each, request_id=f"{i}") for i, each in enumerate(all_kinds() * 2)]
    arrivals = random.integers(0, 40, len(requests)).tolist()
    cancels = {number: arrivals[number] + 4 for number in range(0, len(requests), 5)}
    alone = engine_of(bundle, drafts=False)
    expected = [run_alone(alone, request) for request in requests]
    stories = run_as_they_come(engine_of(bundle, drafts=True, slots=5), requests, arrivals, cancels)
    for number, story in enumerate(expected):
        ours = stories[str(number)]
        if isinstance(ours.final, AbortedEvent):
            assert number in cancels and ours.said == story.said[: len(ours.said)]
        else:
            assert comparable_story(ours) == comparable_story(story)


def test_engines_side_by_side_say_the_same(bundle: Bundle) -> None:
    config = EngineConfig(6, 1, speculation=True)
    graphs = open_graphs(bundle, config)
    shared = SharedParts.create(bundle.manifest, config, graphs)
    engines = [
        Engine(bundle, config, graphs, (), shared, job_size) for job_size in (JobSize.COMMON,) * 2
    ]
    requests, stories, num_accepted = all_kinds(), dict[str, Story](), [0, 0]
    engines[0].submit(*requests)
    while any(engine.has_work for engine in engines):
        for i, engine in enumerate(engines):
            record_events(stories, engine.step())
            num_accepted[i] += engine.step_stats.num_accepted_tokens
    expected = Counted(engine_of(bundle, drafts=False)).run(requests)
    assert {name: comparable_story(story) for name, story in stories.items()} == expected
    assert all(num_accepted)


@pytest.mark.parametrize("num_new", range(1, 9))
def test_no_request_goes_beyond_its_length(bundle: Bundle, num_new: int) -> None:
    story = run_alone(engine_of(bundle, drafts=True), asking(1, "short", max_new_tokens=num_new))
    assert isinstance(story.final, FinishedEvent)
    assert story.final.reason is FinishReason.LENGTH
    assert story.final.num_generated_tokens == len(story.tokens) == num_new


def test_the_context_can_be_filled_to_its_end(bundle: Bundle) -> None:
    request = asking(2, "all", max_new_tokens=None)
    drafting = Counted(engine_of(bundle, drafts=True))
    assert drafting.run([request]) == Counted(engine_of(bundle, drafts=False)).run([request])
    assert drafting.num_accepted


def test_a_stop_token_within_a_draft_ends_the_request(bundle: Bundle) -> None:
    plain = engine_of(bundle, drafts=False)
    whole = run_alone(plain, asking(3, "whole")).token_ids
    ends = [asking(3, str(token_id), stop_token_ids=(token_id,)) for token_id in {*whole}]
    expected = {name: comparable_story(story) for name, story in run_all(plain, ends).items()}
    assert Counted(engine_of(bundle, drafts=True)).run(ends) == expected


def test_a_deadline_ends_one_request_and_leaves_its_company_alone(bundle: Bundle) -> None:
    late, other = asking(4, "late", timeout_seconds=0.001), asking(5, "other")
    engine = engine_of(bundle, drafts=True)
    stories = run_all(engine, [late, other])
    final = stories[late.request_id].final
    assert isinstance(final, FailedEvent) and isinstance(final.error, DeadlineExceeded)
    expected = run_alone(engine_of(bundle, drafts=False), other)
    assert comparable_story(stories[other.request_id]) == comparable_story(expected)
    assert engine.stats().num_rows == 0


def test_what_was_drafted_in_vain_is_in_no_cache(bundle: Bundle) -> None:
    sizes = {"prefill_chunk": 8, "prefix_cache_bytes": 2**22}
    drafting = Counted(engine_of(bundle, drafts=True, **sizes))
    first = [asking(i, "first", **ASKS["allowed"]) for i in range(4)]
    drafting.run(first)
    assert drafting.num_accepted < drafting.num_drafted
    followers = [
        replace(request, request_id=f"{i} again", prompt_ids=request.prompt_ids[: 12 + 4 * i] * 2)
        for i, request in enumerate(first)
    ]
    again = [*first, *followers]
    plain = Counted(engine_of(bundle, drafts=False, prefix_cache_bytes=0, prefill_chunk=8))
    assert drafting.run(again) == plain.run(again)


def test_a_full_batch_drafts_nothing(bundle: Bundle) -> None:
    rows = MAX_ROWS + 1
    engine = engine_of(bundle, drafts=True, slots=rows)
    engine.submit(*(asking(i, "row") for i in range(rows)))
    drafting = Counted(engine)
    while engine.stats().num_rows < rows:
        engine.step()
    while engine.stats().num_rows == rows:
        engine.step()
        drafting.num_drafted += engine.step_stats.num_drafted_tokens
    assert drafting.num_drafted == 0


def test_a_run_that_fails_ends_its_rows_and_no_other(bundle: Bundle) -> None:
    config = EngineConfig(4, 1, speculation=True)
    graphs = open_graphs(bundle, config)
    failing = Failing(graphs.verify)
    engine = Engine(bundle, config, replace(graphs, verify=failing))
    story = run_alone(engine, asking(6, "first"))
    assert isinstance(story.final, FailedEvent) and isinstance(story.final.error, EngineError)
    failing.is_broken = False
    assert comparable_story(run_alone(engine, asking(6, "second"))) == comparable_story(
        run_alone(engine_of(bundle, drafts=False), asking(6, "second"))
    )


class Failing:
    def __init__(self, graph: Any) -> None:
        self._graph, self.is_broken = graph, True

    def bind(self, inputs: Any, outputs: Any) -> Any:
        run = self._graph.bind(inputs, outputs)

        def run_or_fail() -> None:
            if self.is_broken:
                raise RuntimeError("broken")
            run()

        return run_or_fail


def test_drawn_tokens_are_distributed_as_the_model_has_them(bundle: Bundle) -> None:
    """Pearson's chi-square of the second and third token; the first is allowed to be one only."""
    num_draws, allowed = 1500, (40, 41, 42, 43)
    prompt = (40, 41, 42, 43, 40, 42, 41, 43) * 2
    fields: dict[str, Any] = {"prompt_ids": prompt, "ignore_eos": True, "max_new_tokens": 4}
    params = ProcessorParams(allowed_ids=allowed)
    drawn = [
        GenerationRequest(
            str(seed),
            sampling=SamplingParams(temperature=1.0, seed=seed),
            processors=params,
            stop_token_ids=(),
            returns_logprobs=False,
            **fields,
        )
        for seed in range(num_draws)
    ]
    drafting = engine_of(bundle, drafts=True, slots=MAX_ROWS)
    num_drafted = num_accepted = 0
    stories: dict[str, Story] = {}
    drafting.submit(*drawn)
    while drafting.has_work:
        record_events(stories, drafting.step())
        num_drafted += drafting.step_stats.num_drafted_tokens
        num_accepted += drafting.step_stats.num_accepted_tokens
    assert num_accepted > num_draws / 10 and num_drafted - num_accepted > num_draws / 10

    counts = np.zeros((len(allowed), len(allowed)))
    for story in stories.values():
        first, second = (allowed.index(token_id) for token_id in story.token_ids[:2])
        counts[first, second] += 1
    expected = num_draws * pair_probabilities(bundle, prompt, allowed)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert expected.min() > 5
    assert statistic < 37.7  # 99.9 % of the chi-square distribution with 15 degrees of freedom


def pair_probabilities(bundle: Bundle, prompt: tuple[int, ...], allowed: tuple[int, ...]) -> Any:
    """Return what the model says of the next two tokens, of those allowed: f64 [first, second]."""
    engine = engine_of(bundle, drafts=False)

    def probabilities(token_ids: tuple[int, ...]) -> Any:
        scored = [
            GenerationRequest(
                str(token_id), None, token_ids, forced_ids=(token_id,), max_new_tokens=0
            )
            for token_id in allowed
        ]
        stories = run_all(engine, scored)
        likelihoods = np.exp([stories[str(each)].tokens.logprobs[0] for each in allowed])
        return likelihoods / likelihoods.sum()

    first = probabilities(prompt)
    second = np.array([probabilities((*prompt, token_id)) for token_id in allowed])
    return first[:, None] * second
