"""Who comes in when, over a scripted model: queues, staging, caches, deadlines and cancels."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine import engine as engine_module
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.engine.scheduling import admission
from serving.errors import DeadlineExceeded
from serving.requests.parameters import BeamParams, SamplingParams
from serving.requests.request import AbortedEvent, FailedEvent, FinishedEvent, GenerationRequest
from tests.grid import full
from tests.serving.engine.driving import Story, record_events, run_all, run_alone
from tests.serving.engine.toy import CAPACITY, Script, toy_bundle, toy_graphs

SLOTS = 5


def toy_engine(script: Script | None = None, has_encoder: bool = False, **sizes: int) -> Engine:
    config = replace(EngineConfig(slots=SLOTS, threads=1), **sizes)  # type: ignore[arg-type]
    return Engine(toy_bundle(has_encoder), config, toy_graphs(script, has_encoder))


@dataclass
class Clock:
    """Stands in for the engine's clock: one step, one second."""

    now: float = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(engine_module, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


@pytest.fixture
def admission_clock(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Also the clock by which sources wait for each other."""
    monkeypatch.setattr(admission, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


@pytest.mark.parametrize(("num_rows", "waits"), [(0, False), (14, False), (16, True)])
def test_with_many_rows_a_source_waits_a_moment_for_another(
    num_rows: int, waits: bool, admission_clock: Clock
) -> None:
    def new_request(name: object) -> GenerationRequest:
        return GenerationRequest(str(name), (3, 4), max_new_tokens=20, ignore_eos=True)

    for others, seconds in (([], 0.031), (["second"], 0.0)):
        engine = toy_engine(has_encoder=True, slots=40)
        engine.submit(*map(new_request, range(num_rows)))
        engine.step()
        engine.submit(new_request("first"))
        engine.step()
        assert engine.stats().num_waiting == waits
        admission_clock.now += seconds
        engine.submit(*map(new_request, others))
        engine.step()
        assert engine.stats().num_waiting == 0
        assert engine.stats().num_rows == num_rows + 1 + len(others)


@dataclass
class Plan:
    """One request, and the steps before which it comes and is cancelled."""

    request: GenerationRequest
    arrives: int
    cancelled: int | None
    story: Story = field(default_factory=Story)


tokens = st.integers(3, 49)
searches: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.builds(lambda seed: {"sampling": SamplingParams(1.0, seed=seed)}, st.integers(0, 99)),
    st.builds(lambda n: {"beam": BeamParams(n)}, st.integers(1, SLOTS)),
)


@st.composite
def plans(draw: st.DrawFn, has_encoder: bool) -> list[Plan]:
    """Prompts and sources come again, whole or continued."""
    texts = draw(st.lists(st.lists(tokens, min_size=1, max_size=14), min_size=1, max_size=3))
    drawn = []
    for i in range(draw(st.integers(1, 14))):
        text = tuple(draw(st.sampled_from(texts)) + draw(st.lists(tokens, max_size=5)))
        request = GenerationRequest(
            str(i),
            source_ids=text if has_encoder else None,
            prompt_ids=() if has_encoder else text,
            max_new_tokens=draw(st.integers(1, CAPACITY)),
            priority=draw(st.integers(-1, 1)),
            streams=draw(st.booleans()),
            timeout_seconds=draw(st.none() | st.integers(1, 20).map(float)),
            **draw(searches),
        )
        cancelled = draw(st.none() | st.integers(0, 25))
        drawn.append(Plan(request, draw(st.integers(0, 10)), cancelled))
    return drawn


@pytest.mark.parametrize("num_examples", [20, *full([100])])
@pytest.mark.parametrize("has_encoder", [True, False])
def test_every_request_ends_once_and_says_what_it_says_alone(
    has_encoder: bool, num_examples: int, clock: Clock
) -> None:
    @settings(max_examples=num_examples)
    @given(
        drawn_plans=plans(has_encoder),
        chunk=st.integers(1, 9),
        budget=st.integers(1, 20),
        cache_bytes=st.sampled_from([0, 900, 2**20]),
    )
    def holds(drawn_plans: list[Plan], chunk: int, budget: int, cache_bytes: int) -> None:
        engine = toy_engine(
            has_encoder=has_encoder,
            prefill_chunk=chunk,
            max_step_tokens=budget,
            max_encode_tokens=48,
            prefix_cache_bytes=cache_bytes,
            encoder_cache_bytes=cache_bytes,
        )
        play(engine, drawn_plans, clock)
        for plan in drawn_plans:
            check_outcome(plan, has_encoder)
        again = [replace(plan.request, timeout_seconds=None) for plan in drawn_plans]
        stories = run_all(engine, again)
        for request in again:
            alone = run_alone(toy_engine(has_encoder=has_encoder), request)
            assert stories[request.request_id].said == alone.said

    holds()


def play(engine: Engine, drawn_plans: list[Plan], clock: Clock) -> None:
    stories = {plan.request.request_id: plan.story for plan in drawn_plans}
    tick, clock.now = 0, 0.0
    while engine.has_work or tick <= 26:
        for plan in drawn_plans:
            if plan.arrives == tick:
                engine.submit(plan.request)
            if plan.cancelled == tick:
                engine.cancel(plan.request.request_id)
        record_events(stories, engine.step())
        assert 0 <= engine.stats().num_rows <= SLOTS
        for plan in drawn_plans:
            timeout = plan.request.timeout_seconds
            if timeout is not None and tick >= plan.arrives + timeout:
                assert plan.story.final is not None or plan.cancelled is not None
        tick += 1
        clock.now += 1
        assert tick < 1000, "somebody waits for ever"
    assert engine.stats().num_rows == engine.stats().num_waiting == 0


def check_outcome(plan: Plan, has_encoder: bool) -> None:
    request, story = plan.request, plan.story
    if plan.cancelled is not None and plan.cancelled < plan.arrives:
        plan = replace(plan, cancelled=None)
    alone = run_alone(
        toy_engine(has_encoder=has_encoder, prefix_cache_bytes=0, encoder_cache_bytes=0),
        replace(request, timeout_seconds=None),
    )
    if isinstance(story.final, FinishedEvent):
        assert (story.said, story.final) == (alone.said, alone.final)
        return
    assert story.said == alone.said[: len(story.said)]
    if isinstance(story.final, AbortedEvent):
        assert plan.cancelled is not None
    else:
        assert isinstance(story.final, FailedEvent)
        assert isinstance(story.final.error, DeadlineExceeded)
        assert request.timeout_seconds is not None


@pytest.mark.parametrize("has_encoder", [True, False])
@settings(max_examples=30)
@given(priorities=st.lists(st.integers(-2, 2), min_size=1, max_size=12))
def test_the_lowest_priority_comes_first_and_equals_as_they_came(
    has_encoder: bool, priorities: list[int]
) -> None:
    engine = toy_engine(has_encoder=has_encoder, slots=1)
    source, prompt = ((5, 6), ()) if has_encoder else (None, (5, 6))
    requests = [
        GenerationRequest(str(i), source, prompt, max_new_tokens=2, priority=priority)
        for i, priority in enumerate(priorities)
    ]
    expected = sorted(requests, key=lambda request: request.priority)
    assert list(run_all(engine, requests)) == [request.request_id for request in expected]


def test_sources_come_in_together_while_more_wait_than_rows_are_free() -> None:
    script = Script()
    engine = toy_engine(script, has_encoder=True, slots=8)
    requests = [
        GenerationRequest(str(i), (5 + i,), max_new_tokens=1 + i % 8, ignore_eos=True)
        for i in range(16)
    ]
    assert len(run_all(engine, requests)) == 16
    assert [num_rows for num_rows, _ in script.encode_shapes[:3]] == [8, 2, 2]


def test_a_source_that_a_free_row_is_enough_for_waits_for_no_other() -> None:
    engine = toy_engine(has_encoder=True, slots=8)
    engine.submit(*(GenerationRequest(str(i), (5 + i,), ignore_eos=True) for i in range(7)))
    engine.step()
    engine.submit(GenerationRequest("late", (5,), ignore_eos=True))
    engine.step()
    assert engine.stats().num_rows == 8


def test_rows_decode_on_while_a_long_prompt_comes_in() -> None:
    script = Script()
    engine = toy_engine(script, prefill_chunk=4, max_step_tokens=6)
    engine.submit(GenerationRequest("decoding", None, (3,), ignore_eos=True, streams=True))
    engine.step()
    script.step_shapes.clear()
    engine.submit(GenerationRequest("long", None, tuple(range(3, 21)), max_new_tokens=1))
    ids_of_steps = [{event.request_id for event in engine.step()} for _ in range(5)]
    assert ids_of_steps == [{"decoding"}] * 4 + [{"decoding", "long"}]
    assert script.step_shapes == [(1, 4), (1, 1)] * 4 + [(1, 2), (2, 1)]


def test_a_budget_takes_several_chunks_and_prompts_into_one_step() -> None:
    script = Script()
    engine = toy_engine(script, prefill_chunk=4, max_step_tokens=20)
    engine.submit(*(GenerationRequest(str(i), None, tuple(range(3 + i, 13 + i))) for i in range(3)))
    engine.step()
    assert script.step_shapes == [(1, 4), (1, 4), (1, 2), (1, 4), (1, 4), (1, 1)]
    assert (engine.stats().num_rows, engine.stats().num_waiting) == (1, 2)


def test_a_more_urgent_prompt_overtakes_one_that_is_coming_in() -> None:
    engine = toy_engine(prefill_chunk=4, max_step_tokens=4)
    engine.submit(GenerationRequest("long", None, tuple(range(3, 20)), max_new_tokens=1))
    engine.step()
    engine.submit(GenerationRequest("later", None, (3, 4), max_new_tokens=1))
    engine.submit(GenerationRequest("urgent", None, (5, 6), max_new_tokens=1, priority=-1))
    stories: dict[str, Story] = {}
    while engine.has_work:
        record_events(stories, engine.step())
    assert list(stories) == ["urgent", "long", "later"]


@pytest.mark.parametrize("num_steps", [0, 1, 4])
@pytest.mark.parametrize("num_beams", [1, 4])
def test_cancelling_gives_all_rows_back_wherever_a_request_is(
    num_steps: int, num_beams: int
) -> None:
    """It waits, is being prefilled, or decodes."""
    engine = toy_engine(prefill_chunk=4, max_step_tokens=4)
    beam = BeamParams(num_beams)
    engine.submit(GenerationRequest("r", None, tuple(range(3, 13)), beam=beam, ignore_eos=True))
    for _ in range(num_steps):
        assert engine.step() == []
    assert engine.stats().num_rows == (num_beams if num_steps == 4 else 0)
    engine.cancel("r")
    wide = GenerationRequest("wide", None, (7,), beam=BeamParams(SLOTS))
    engine.submit(wide)
    assert engine.step()[0] == AbortedEvent("r")
    assert engine.stats().num_rows == SLOTS
    assert run_all(engine, [])["wide"].said == run_alone(toy_engine(), wide).said


def test_a_prompt_that_comes_in_has_its_rows_reserved() -> None:
    engine = toy_engine(prefill_chunk=4, max_step_tokens=4)
    beam = BeamParams(4)
    engine.submit(GenerationRequest("wide", None, tuple(range(3, 13)), beam=beam))
    engine.step()
    engine.submit(GenerationRequest("u1", None, (3,), priority=-1, ignore_eos=True))
    engine.submit(GenerationRequest("u2", None, (3,), priority=-1, ignore_eos=True))
    engine.step()
    assert engine.stats().num_rows == 1
    assert engine.stats().num_waiting == 2


@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_a_deadline_ends_a_request_wherever_it_is(num_steps: int, clock: Clock) -> None:
    engine = toy_engine(prefill_chunk=4, max_step_tokens=4)
    request = GenerationRequest("r", None, tuple(range(3, 13)), timeout_seconds=5, ignore_eos=True)
    engine.submit(request)
    for _ in range(num_steps):
        engine.step()
    clock.now = 5.0
    (event,) = engine.step()
    assert isinstance(event, FailedEvent)
    assert isinstance(event.error, DeadlineExceeded)
    assert "5 s" in str(event.error)
    assert engine.step_stats.num_expired == 1
    assert engine.stats().num_rows == engine.stats().num_waiting == 0


def test_a_prompt_seen_before_is_not_computed_again() -> None:
    script = Script()
    engine = toy_engine(script, prefill_chunk=4)
    first = GenerationRequest("first", None, tuple(range(3, 13)), max_new_tokens=1)
    run_all(engine, [first])
    script.step_shapes.clear()
    engine.submit(replace(first, request_id="same"))
    engine.step()
    assert script.step_shapes == [(1, 1)]
    assert (engine.step_stats.num_prefix_hits, engine.step_stats.num_prefix_misses) == (10, 0)
    other = replace(first, request_id="other", prompt_ids=(*first.prompt_ids[:8], 40, 41))
    assert run_alone(engine, other).said == run_alone(toy_engine(), other).said
    assert script.step_shapes == [(1, 1), (1, 2), (1, 1)]
    assert (engine.step_stats.num_prefix_hits, engine.step_stats.num_prefix_misses) == (8, 2)


def test_equal_sources_are_encoded_once_and_those_seen_before_not_at_all() -> None:
    script = Script()
    engine = toy_engine(script, has_encoder=True)
    requests = [
        GenerationRequest(str(i), source) for i, source in enumerate([(5, 6), (7,), (5, 6)])
    ]
    engine.submit(*requests)
    engine.step()
    assert script.encode_shapes == [(2, 4)]
    assert (engine.step_stats.num_encoder_hits, engine.step_stats.num_encoder_misses) == (1, 2)
    run_all(engine, [])
    stories = run_all(engine, requests)
    assert script.encode_shapes == [(2, 4)]
    for request in requests:
        alone = run_alone(toy_engine(has_encoder=True), request)
        assert stories[request.request_id].said == alone.said


def test_caches_that_are_off_keep_nothing() -> None:
    script = Script()
    engine = toy_engine(script, prefill_chunk=4, prefix_cache_bytes=0)
    request = GenerationRequest("r", None, tuple(range(3, 13)), max_new_tokens=1)
    for _ in range(2):
        run_alone(engine, request)
        assert (engine.step_stats.num_prefix_hits, engine.step_stats.num_prefix_misses) == (0, 0)
    assert script.step_shapes == [(1, 4), (1, 4), (1, 2), (1, 1)] * 2
