"""The engine over a scripted model: what is said, who ends how, and that every slot comes back."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.config import EngineConfig
from serving.engine.decoding.sampler import Sampler
from serving.engine.decoding.scores import Scores
from serving.engine.engine import Engine
from serving.engine.generation import Generation
from serving.errors import EngineError, Overloaded, RequestError
from serving.requests.parameters import BeamParams, ProcessorParams, SamplingParams
from serving.requests.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
)
from tests.serving.engine.driving import Story, record_events, run_all, run_alone, run_as_they_come
from tests.serving.engine.toy import (
    BOS,
    CAPACITY,
    MAX_SOURCE,
    STOP,
    VOCAB_SIZE,
    WINDOW,
    Script,
    next_logp,
    toy_bundle,
    toy_graphs,
)


def toy_engine(
    script: Script | None = None, has_encoder: bool = True, **sizes: float | None
) -> Engine:
    config = replace(EngineConfig(slots=8, threads=1), **sizes)  # type: ignore[arg-type]
    return Engine(toy_bundle(has_encoder), config, toy_graphs(script, has_encoder))


def naive(request: GenerationRequest) -> list[int]:
    """Return what a request should say, computed whole sequence by whole sequence."""
    params, target = request.sampling, (BOS, *request.prompt_ids)
    room = CAPACITY - len(target)
    count = min(request.max_new_tokens or room, room)
    sampling, seed = Sampler(1, VOCAB_SIZE), params.seed or 0
    sampling.on_add(0, Generation(request, target, count, frozenset(), False, seed, 0.0, None))
    said: list[int] = []
    for position in range(count):
        logp = next_logp(request.source_ids or (), target + tuple(said))
        top_ids = np.argsort(-logp, kind="stable")[:WINDOW]
        scores = Scores(logp[None], logp[top_ids][None], top_ids[None], np.zeros(1))
        token = int(sampling.choose(scores, np.array([position])).token_ids[0])
        if token == STOP:
            break
        said.append(token)
    return said


samplings = st.one_of(
    st.just(SamplingParams()),
    st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.sampled_from([0, 3, 20]),
        top_p=st.sampled_from([1.0, 0.8]),
        seed=st.integers(0, 2**64 - 1),
    ),
)
tokens = st.integers(3, 49)


def requests(has_encoder: bool) -> st.SearchStrategy[GenerationRequest]:
    sources = st.lists(tokens, min_size=1, max_size=MAX_SOURCE).map(tuple)
    return st.builds(
        GenerationRequest,
        request_id=st.uuids().map(str),
        source_ids=sources if has_encoder else st.none(),
        prompt_ids=st.lists(tokens, max_size=CAPACITY - 2).map(tuple),
        sampling=samplings,
        max_new_tokens=st.one_of(st.none(), st.integers(1, 30)),
    )


@pytest.mark.parametrize("has_encoder", [True, False])
@settings(max_examples=40)
@given(data=st.data())
def test_says_what_a_naive_loop_says_whatever_comes_and_goes(
    has_encoder: bool, data: st.DataObject
) -> None:
    drawn_requests = data.draw(st.lists(requests(has_encoder), min_size=1, max_size=20))
    arrivals = data.draw(
        st.lists(st.integers(0, 12), min_size=len(drawn_requests), max_size=len(drawn_requests))
    )
    cancels = data.draw(
        st.dictionaries(st.integers(0, len(drawn_requests) - 1), st.integers(0, 30), max_size=10)
    )
    chunk = data.draw(st.integers(1, 9))
    engine = toy_engine(has_encoder=has_encoder, slots=5, prefill_chunk=chunk, max_encode_tokens=64)
    stories = run_as_they_come(engine, drawn_requests, arrivals, cancels)
    for i, request in enumerate(drawn_requests):
        story = stories[request.request_id]
        expected = naive(request)
        if isinstance(story.final, AbortedEvent):
            assert i in cancels
            assert story.token_ids == expected[: len(story.tokens)]
        else:
            assert isinstance(story.final, FinishedEvent)
            assert story.token_ids == expected


def test_a_request_ends_at_a_stop_token_or_at_its_length() -> None:
    requests = [GenerationRequest(str(i), (3 + i, 9, 4 + i)) for i in range(40)]
    stories = run_all(toy_engine(), requests)
    reasons = set()
    for request in requests:
        final = stories[request.request_id].final
        assert isinstance(final, FinishedEvent)
        reasons.add(final.reason)
        num_tokens = len(stories[request.request_id].tokens)
        is_stop = final.reason is FinishReason.STOP
        assert final.num_generated_tokens == num_tokens + is_stop
        assert is_stop or num_tokens == CAPACITY - 1
        assert (final.num_source_tokens, final.num_prompt_tokens) == (3, 1)
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


def test_max_new_tokens_is_cut_to_what_the_bundle_allows() -> None:
    unstopped = next(
        request
        for request in (GenerationRequest(str(i), (i,)) for i in range(3, 49))
        if len(naive(request)) == CAPACITY - 1
    )
    short = GenerationRequest("short", unstopped.source_ids, max_new_tokens=4)
    long = GenerationRequest("long", unstopped.source_ids, max_new_tokens=10**9)
    stories = run_all(toy_engine(), [short, long])
    assert len(stories["short"].tokens) == 4
    assert len(stories["long"].tokens) == CAPACITY - 1


def test_reports_the_likeliest_tokens_when_asked() -> None:
    request = GenerationRequest("r", (5, 6), logprobs=3, max_new_tokens=2)
    tokens = run_alone(toy_engine(), request).tokens
    logp = next_logp((5, 6), (BOS,))
    best = np.argsort(-logp, kind="stable")[:3]
    assert [entry.token_id for entry in tokens.top[0]] == best.tolist()
    assert [entry.logprob for entry in tokens.top[0]] == logp[best].tolist()
    assert tokens.logprobs[0] == logp[tokens.ids[0]]


def test_without_a_seed_every_request_gets_its_own() -> None:
    sampling = SamplingParams(temperature=5.0)
    requests = [GenerationRequest(str(i), (7, 8), sampling=sampling) for i in range(10)]
    stories = run_all(toy_engine(), requests)
    assert len({tuple(story.token_ids) for story in stories.values()}) > 5


def test_a_failing_encode_fails_its_group_only() -> None:
    engine = toy_engine(Script(poisoned_sources={49}))
    bad = GenerationRequest("bad", (49, 3, 4))
    good = GenerationRequest("good", tuple(range(3, 40)))
    stories = run_all(engine, [bad, good])
    failure = stories["bad"].final
    assert isinstance(failure, FailedEvent)
    assert isinstance(failure.error, EngineError)
    assert "poisoned source" in str(failure.error)
    assert stories["good"].token_ids == naive(good)


def test_a_failing_prefill_fails_its_request_only() -> None:
    engine = toy_engine(Script(poisoned_tokens={49}), has_encoder=False)
    good = [GenerationRequest(f"good{i}", None, (5, 6, 7 + i)) for i in range(9)]
    good = [each for each in good if 49 not in naive(each)]
    bad = GenerationRequest("bad", None, (5, 49, 7))
    stories = run_all(engine, [good[0], bad, *good[1:]])
    assert isinstance(stories["bad"].final, FailedEvent)
    for request in good:
        assert stories[request.request_id].token_ids == naive(request)


def test_a_failing_step_fails_the_batch_and_the_engine_lives_on() -> None:
    script = Script(poisoned_tokens={BOS})
    engine = toy_engine(script)
    stories = run_all(engine, [GenerationRequest(str(i), (3, 4)) for i in range(12)])
    assert all(isinstance(story.final, FailedEvent) for story in stories.values())
    assert engine.stats().num_rows == 0
    script.poisoned_tokens.clear()
    request = GenerationRequest("after", (3, 4))
    assert run_alone(engine, request).token_ids == naive(request)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling": SamplingParams(temperature=0.7, seed=1)},
        {"sampling": SamplingParams(temperature=0.7, seed=1, top_p=0.9)},
        {"processors": ProcessorParams(repetition_penalty=1.3)},
        {"beam": BeamParams(num_beams=3)},
    ],
    ids=["greedy", "sampled", "top_p", "penalty", "beams"],
)
def test_scores_that_are_not_numbers_fail_their_request_only(options: dict[str, Any]) -> None:
    prompts = {"good": (5, 6, 7), "bad": (5, 6, 49), "other": (8, 9), "worse": (49,)}
    requests = [GenerationRequest(name, None, ids, **options) for name, ids in prompts.items()]
    script = Script(possible=tuple(range(49)))
    expected = run_all(toy_engine(script, has_encoder=False), requests)
    script.tokens_without_scores.add(49)
    engine = toy_engine(script, has_encoder=False)
    stories = run_all(engine, requests)
    for name in ("good", "other"):
        assert stories[name].token_ids == expected[name].token_ids
        assert isinstance(stories[name].final, FinishedEvent)
    for name in ("bad", "worse"):
        failure = stories[name].final
        assert isinstance(failure, FailedEvent) and not stories[name].streamed
        assert str(failure.error) == "the model's scores are not numbers (NaN)"
    assert engine.stats().num_rows == 0


def test_the_queue_is_bounded() -> None:
    engine = toy_engine(slots=2, max_waiting=3)
    for i in range(5):
        engine.submit(GenerationRequest(str(i), (3,)))
    with pytest.raises(Overloaded):
        engine.submit(GenerationRequest("one too many", (3,)))
    stories: dict[str, Story] = {}
    while engine.has_work:
        record_events(stories, engine.step())
    assert len(stories) == 5


def test_the_queue_may_have_no_bound() -> None:
    engine = toy_engine(slots=1, max_waiting=None)
    stories = run_all(engine, [GenerationRequest(str(i), (3,)) for i in range(20)])
    assert len(stories) == 20


def test_a_waiting_request_joins_at_the_next_step() -> None:
    script = Script()
    engine = toy_engine(script, slots=4)
    engine.submit(GenerationRequest("first", (3,), streams=True))
    engine.step()
    engine.submit(GenerationRequest("second", (4,), streams=True))
    events = engine.step()
    assert {event.request_id for event in events} == {"first", "second"}
    assert script.step_shapes == [(1, 1), (2, 1)]


def test_sources_are_encoded_together_when_their_padded_lengths_agree() -> None:
    script = Script()
    engine = toy_engine(script)
    lengths = [3, 30, 4, 32, 1]
    run_all(engine, [GenerationRequest(str(i), (5,) * n) for i, n in enumerate(lengths)])
    assert script.encode_shapes == [(3, 4), (2, 32)]


def test_a_step_encodes_no_more_than_its_budget() -> None:
    script = Script()
    engine = toy_engine(script, max_encode_tokens=10)
    for i in range(5):
        engine.submit(GenerationRequest(str(i), (5 + i,)))
    engine.step()
    assert engine.stats().num_rows == 2
    assert engine.stats().num_waiting == 3
    assert (engine.step_stats.num_source_tokens, engine.step_stats.num_padded_tokens) == (2, 8)


def test_prompts_are_prefilled_in_chunks() -> None:
    script = Script()
    engine = toy_engine(script, has_encoder=False, prefill_chunk=4)
    request = GenerationRequest("r", None, tuple(range(3, 13)), max_new_tokens=1)
    assert run_alone(engine, request).token_ids == naive(request)
    assert script.step_shapes == [(1, 4), (1, 4), (1, 2), (1, 1)]


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (GenerationRequest("r", None), "source_ids"),
        (GenerationRequest("r", ()), "source_ids"),
        (GenerationRequest("r", (3,) * (MAX_SOURCE + 1)), "source_ids"),
        (GenerationRequest("r", (3, 50)), "source_ids"),
        (GenerationRequest("r", (3, -1)), "source_ids"),
        (GenerationRequest("r", (3,), prompt_ids=(50,)), "prompt_ids"),
        (GenerationRequest("r", (3,), prompt_ids=(5,) * (CAPACITY - 1)), "prompt_ids"),
    ],
)
def test_refuses_what_the_model_cannot_take(request_: GenerationRequest, field: str) -> None:
    engine = toy_engine()
    with pytest.raises(RequestError) as caught:
        engine.submit(request_)
    assert caught.value.field == field
    assert not engine.has_work


def test_refuses_a_source_for_a_language_model_and_a_request_id_in_use() -> None:
    engine = toy_engine(has_encoder=False)
    with pytest.raises(RequestError, match="source_ids"):
        engine.submit(GenerationRequest("r", (3,)))
    engine.submit(GenerationRequest("r"))
    with pytest.raises(RequestError, match="request_id"):
        engine.submit(GenerationRequest("r"))


def test_cancelling_twice_or_the_unknown_is_nothing() -> None:
    engine = toy_engine()
    engine.submit(GenerationRequest("r", (3,)))
    engine.cancel("r")
    engine.cancel("r")
    engine.cancel("who?")
    assert engine.step() == [AbortedEvent("r")]
    assert not engine.has_work


@pytest.mark.parametrize("has_encoder", [True, False])
def test_a_stop_token_is_the_end_only_of_what_is_given_whole(has_encoder: bool) -> None:
    source = (5, 6) if has_encoder else None

    def outcome_of(
        forced: tuple[int, ...], max_new_tokens: int
    ) -> tuple[list[int], FinishReason, bool]:
        request = GenerationRequest(
            "r", source, (9,), forced_ids=forced, max_new_tokens=max_new_tokens
        )
        story = run_alone(toy_engine(has_encoder=has_encoder), request)
        assert isinstance(story.final, FinishedEvent)
        return story.token_ids, story.final.reason, story.final.best.stop_logprob is not None

    assert outcome_of((7, STOP), 0) == ([7], FinishReason.STOP, True)
    assert outcome_of((7, STOP, 8), 0) == ([7, STOP, 8], FinishReason.LENGTH, False)
    token_ids, _, _ = outcome_of((7, STOP), 1)
    assert token_ids[:2] == [7, STOP]


def test_a_stop_token_in_a_prompt_ends_nothing() -> None:
    request = GenerationRequest("r", (5, 6), prompt_ids=(7, STOP, 8), max_new_tokens=6)
    story = run_alone(toy_engine(), request)
    assert story.token_ids == naive(request)
    assert isinstance(story.final, FinishedEvent)
    assert story.final.num_prompt_tokens == 4
