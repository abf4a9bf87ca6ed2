"""Beam search in the running batch, over a scripted model: the same hypotheses as a plain search,
whatever else is in the batch, and every row comes back.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.errors import RequestError
from serving.requests.parameters import BeamParams
from serving.requests.request import (
    AbortedEvent,
    FailedEvent,
    FinishedEvent,
    FinishReason,
    GenerationRequest,
)
from tests.serving.engine.driving import Story, run_all, run_alone, run_as_they_come
from tests.serving.engine.test_engine import naive, requests, toy_engine
from tests.serving.engine.toy import BOS, CAPACITY, STOP, Script, next_logp

SLOTS = 9


@dataclass(frozen=True)
class Plain:
    """A hypothesis of the plain search. token_ids: generated, the stop token included."""

    token_ids: tuple[int, ...]
    score: float


def plain_beam_search(request: GenerationRequest) -> list[Plain]:
    """Beam search as the parameters mean it, one whole sequence at a time."""
    params, prompt = request.beam, (BOS, *request.prompt_ids, *request.forced_ids)
    assert params is not None
    room = CAPACITY - len(prompt)
    most = room if request.max_new_tokens is None else min(room, request.max_new_tokens)
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    pool: list[Plain] = []
    for length in range(1, most + 1):
        candidates = []
        for logprob, ids in live:
            logp = next_logp(request.source_ids or (), prompt + ids)
            candidates += [(logprob + float(each), (*ids, i)) for i, each in enumerate(logp)]
        candidates.sort(key=lambda each: -each[0])
        ends = [each[1][-1] == STOP or length == most for each in candidates]
        for rank in range(params.num_beams):
            if ends[rank]:
                logprob, ids = candidates[rank]
                pool.append(Plain(ids, logprob / length**params.length_penalty))
        pool = sorted(pool, key=lambda each: -each.score)
        pool = pool[: max(params.num_enough, params.num_hypotheses)]
        live = [each for each, end in zip(candidates, ends, strict=True) if not end]
        live = live[: params.num_beams]
        if not live or (
            len(pool) >= params.num_enough and is_final(params, pool, live, length, most)
        ):
            break
    return pool[: params.num_hypotheses]


def is_final(params: BeamParams, pool: list[Plain], live: list, length: int, most: int) -> bool:
    if params.early_stopping is True:
        return True
    is_bold = params.early_stopping == "never" and params.length_penalty > 0
    bound = live[0][0] / (most if is_bold else length) ** params.length_penalty
    return bound <= pool[-1].score


def said(story: Story) -> list[Plain]:
    assert isinstance(story.final, FinishedEvent)
    hypotheses = []
    for each in story.final.hypotheses:
        end = (STOP,) if each.reason is FinishReason.STOP else ()
        hypotheses.append(Plain((*each.tokens.ids, *end), each.score))
    return hypotheses


def agrees(story: Story, request: GenerationRequest) -> None:
    expected, hypotheses = plain_beam_search(request), said(story)
    assert [(*request.forced_ids, *each.token_ids) for each in expected] == [
        each.token_ids for each in hypotheses
    ]
    assert [each.score for each in hypotheses] == pytest.approx(
        [each.score for each in expected], abs=1e-4
    )
    final = story.final
    assert isinstance(final, FinishedEvent)
    assert story.token_ids == final.best.tokens.ids
    assert final.num_generated_tokens == len(expected[0].token_ids)


beam_params = st.builds(
    BeamParams,
    num_beams=st.integers(2, 5),
    num_hypotheses=st.integers(1, 2),
    length_penalty=st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    early_stopping=st.sampled_from([True, False, "never"]),
    patience=st.sampled_from([0.5, 1.0, 1.6]),
)
token_lists = st.lists(st.integers(3, 49), max_size=4).map(tuple)


@st.composite
def beam_requests(draw: st.DrawFn, has_encoder: bool) -> GenerationRequest:
    plain = draw(requests(has_encoder))
    return replace(
        plain,
        sampling=replace(plain.sampling, temperature=0.0, top_k=0, top_p=1.0),
        prompt_ids=plain.prompt_ids[:8],
        forced_ids=draw(token_lists),
        beam=draw(beam_params),
        max_new_tokens=draw(st.integers(1, 14)),
        streams=draw(st.booleans()),
    )


@pytest.mark.parametrize("has_encoder", [True, False])
@settings(max_examples=40)
@given(data=st.data())
def test_beams_say_what_a_plain_search_says_whatever_comes_and_goes(
    has_encoder: bool, data: st.DataObject
) -> None:
    either = st.one_of(requests(has_encoder), beam_requests(has_encoder))
    wanted = data.draw(st.lists(either, min_size=1, max_size=10))
    arrivals = data.draw(st.lists(st.integers(0, 12), min_size=len(wanted), max_size=len(wanted)))
    cancels = data.draw(
        st.dictionaries(st.integers(0, len(wanted) - 1), st.integers(0, 30), max_size=4)
    )
    engine = toy_engine(has_encoder=has_encoder, slots=SLOTS)
    stories = run_as_they_come(engine, wanted, arrivals, cancels)
    for i, request in enumerate(wanted):
        story = stories[request.request_id]
        if isinstance(story.final, AbortedEvent):
            assert i in cancels
        elif request.beam:
            agrees(story, request)
        else:
            assert story.token_ids == naive(request)


def test_beams_that_may_still_be_reported_are_kept() -> None:
    """With less patience than hypotheses asked for, the search goes on with worse beams than the
    first that has ended: one of them becomes the second hypothesis.
    """
    request = GenerationRequest(
        "impatient",
        source_ids=(28, 33, 36, 20, 3, 44, 35, 16, 21, 10),
        prompt_ids=(11, 27, 14, 15, 39, 48),
        max_new_tokens=4,
        beam=BeamParams(2, num_hypotheses=2, length_penalty=0.0, patience=0.5),
    )
    agrees(run_alone(toy_engine(slots=SLOTS), request), request)


def beam(num_beams: int = 4, **more: object) -> GenerationRequest:
    options = {"max_new_tokens": 12} | more
    return GenerationRequest("beam", (5, 6, 7), beam=BeamParams(num_beams), **options)  # type: ignore[arg-type]


def test_a_streamed_beam_tells_tokens_early_and_takes_none_back() -> None:
    told_early = 0
    for seed in range(12):
        request = replace(beam(streams=True, max_new_tokens=20), source_ids=(3 + seed, 9))
        engine = toy_engine(slots=4)
        engine.submit(request)
        story = Story()
        while story.final is None:
            for event in engine.step():
                story.add(event)
            told_early += len(story.streamed) if story.final is None else 0
        agrees(story, request)
    assert told_early > 0


@pytest.mark.parametrize("num_beams", [1, 2, 8, 16])
def test_every_width_has_its_rows_and_gives_them_back(num_beams: int) -> None:
    request = replace(beam(), beam=BeamParams(num_beams, num_hypotheses=num_beams))
    engine = toy_engine(slots=16)
    engine.submit(request)
    most, events = 0, []
    while engine.has_work:
        events += engine.step()
        most = max(most, engine.step_stats.num_rows)
    story = Story()
    for event in events:
        story.add(event)
    agrees(story, request)
    assert most == num_beams
    assert engine.stats().num_rows == 0


def test_only_one_row_runs_until_the_first_token_is_free() -> None:
    request = replace(beam(forced_ids=(4, 8)), prompt_ids=(11,))
    engine = toy_engine(slots=4)
    engine.submit(request)
    rows = []
    while engine.has_work:
        engine.step()
        rows.append(engine.step_stats.num_rows)
    assert rows[:5] == [1, 1, 1, 1, 4]


def test_beams_that_cannot_win_any_more_give_up_their_rows_at_once() -> None:
    num_freed = 0
    params = BeamParams(4, length_penalty=0.0, early_stopping="never", patience=0.25)
    for seed in range(12):
        request = replace(beam(max_new_tokens=20), source_ids=(3 + seed, 9), beam=params)
        engine = toy_engine(slots=4)
        engine.submit(request)
        story, rows = Story(), []
        while story.final is None:
            for event in engine.step():
                story.add(event)
            rows.append(engine.stats().num_rows)
        agrees(story, request)
        num_freed += sum(0 < num_rows < 4 for num_rows in rows[2:])
    assert num_freed > 0


def test_more_beams_than_rows_are_refused() -> None:
    with pytest.raises(RequestError, match=r"num_beams.*at most 8"):
        toy_engine(slots=8).submit(replace(beam(), beam=BeamParams(9)))


def test_forced_tokens_that_end_are_a_hypothesis() -> None:
    story = run_alone(toy_engine(), beam(forced_ids=(4, 8, STOP), max_new_tokens=0))
    assert story.token_ids == [4, 8]
    assert isinstance(story.final, FinishedEvent)
    assert story.final.reason is FinishReason.STOP
    assert story.final.best.stop_logprob == pytest.approx(
        float(next_logp((5, 6, 7), (BOS, 4, 8))[STOP]), abs=1e-5
    )


def test_a_stop_token_within_forced_ones_ends_nothing() -> None:
    request = beam(forced_ids=(4, STOP, 8))
    agrees(run_alone(toy_engine(), request), request)


def test_a_failing_step_ends_beams_too_and_the_engine_lives_on() -> None:
    script = Script(poisoned_tokens={BOS})
    engine = toy_engine(script)
    stories = run_all(engine, [replace(beam(), request_id=str(i)) for i in range(3)])
    assert all(isinstance(story.final, FailedEvent) for story in stories.values())
    assert engine.stats().num_rows == 0
    script.poisoned_tokens.clear()
    agrees(run_alone(engine, beam()), beam())


def test_rows_are_claimed_from_the_start() -> None:
    engine = toy_engine(slots=6)
    engine.submit(beam(4))
    engine.step()
    engine.submit(replace(beam(4), request_id="second"))
    engine.step()
    assert engine.stats().num_waiting == 1
