"""Rows with shortlists: each says what a model that knows no other tokens would say."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.config import EngineConfig
from serving.engine.decoding.shortlist import UNION_WIDTH_STEP, ShortlistUnion
from serving.engine.engine import Engine
from serving.errors import RequestError
from serving.requests.parameters import ProcessorParams
from serving.requests.request import FinishedEvent, FinishReason, GenerationRequest
from tests.serving.engine.driving import Story, comparable_story, run_all, run_alone
from tests.serving.engine.test_company import ASKS, EOS
from tests.serving.engine.toy import VOCAB_SIZE, WINDOW, Script, toy_bundle, toy_graphs

WITHOUT = {"forced", "plain and forced", "forced beam", "scored", "forced beyond a stop"} | {
    "allowed",
    "term",
    # Timestamps are beyond the vocabulary.
    "timestamps",
    "timestamps drawn",
    "timestamps of beams",
}
SMALL_ASKS = {name: ask for name, ask in ASKS.items() if name not in WITHOUT}


def short_engine(slots: int = 8) -> Engine:
    bundle = toy_bundle(has_shortlist=True)
    return Engine(bundle, EngineConfig(slots=slots), toy_graphs())


def shortlist_of(number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    others = np.random.default_rng(number).permutation(np.arange(3, VOCAB_SIZE))
    return np.sort(np.concatenate([[0, 1, EOS], others[: 8 + 3 * number % 30]]))


def requests() -> Iterator[GenerationRequest]:
    for number, (name, ask) in enumerate(SMALL_ASKS.items()):
        source = tuple(3 + (5 * number + i * i) % 40 for i in range(3 + number % 9))
        fields: dict[str, Any] = {"source_ids": source, "shortlist": shortlist_of(number)}
        yield GenerationRequest(name, **{"max_new_tokens": 12} | fields | ask)


@pytest.mark.parametrize("request_", list(requests()), ids=lambda each: each.request_id)
def test_a_row_says_what_a_model_of_these_tokens_only_says(request_: GenerationRequest) -> None:
    engine = short_engine(slots=12)
    assert request_.shortlist is not None
    possible = tuple(np.union1d(request_.shortlist, np.arange(WINDOW)).tolist())
    if len(request_.shortlist) >= WINDOW:
        possible = tuple(request_.shortlist.tolist())
    whole = Engine(toy_bundle(), EngineConfig(slots=12), toy_graphs(Script(possible)))
    expected = run_alone(whole, replace(request_, shortlist=None))
    assert comparable_story(run_alone(engine, request_)) == comparable_story(expected)


@pytest.mark.parametrize("slots", [12, 80])
def test_a_row_says_the_same_alone_and_in_company(slots: int) -> None:
    everything = GenerationRequest("everything", source_ids=(4, 5), max_new_tokens=5)
    all_requests = [*requests(), everything]
    together = run_all(short_engine(slots), all_requests)
    backwards = run_all(short_engine(slots), reversed(all_requests))
    for request in all_requests:
        alone = comparable_story(run_alone(short_engine(slots), request))
        assert comparable_story(together[request.request_id]) == alone, request.request_id
        assert comparable_story(backwards[request.request_id]) == alone, request.request_id


def test_without_a_shortlist_a_row_has_the_whole_vocabulary() -> None:
    request = GenerationRequest("r", source_ids=(7, 8, 9), max_new_tokens=15, logprobs=3)
    whole = run_alone(Engine(toy_bundle(), EngineConfig(slots=4), toy_graphs()), request)
    assert comparable_story(run_alone(short_engine(), request)) == comparable_story(whole)


def test_forced_tokens_are_scored_though_they_are_not_on_the_shortlist() -> None:
    ids = np.array([0, 1, EOS, *range(10, 20)])
    request = GenerationRequest("r", source_ids=(7, 8), forced_ids=(40, 41), shortlist=ids)
    story = run_alone(short_engine(), request)
    assert story.token_ids[:2] == [40, 41]
    assert np.isfinite(story.tokens.logprobs).all()
    assert set(story.token_ids) <= {40, 41, *ids.tolist()}


def test_a_row_whose_whole_shortlist_is_banned_is_at_an_end() -> None:
    ids = np.arange(3, 3 + WINDOW)
    words = tuple((token_id,) for token_id in ids.tolist())
    processors = ProcessorParams(bad_words=words, min_tokens=5)
    request = GenerationRequest("r", source_ids=(7, 8), shortlist=ids, processors=processors)
    final = run_alone(short_engine(), request).final
    assert isinstance(final, FinishedEvent)
    assert final.reason is FinishReason.CONSTRAINT


@pytest.mark.parametrize(
    ("ids", "message"),
    [([3, 2], "ascending"), ([3, 3], "ascending"), ([], "empty"), ([3, 50], "no such token")],
)
def test_a_shortlist_is_checked(ids: list[int], message: str) -> None:
    shortlist = np.array(ids, np.int64)
    with pytest.raises(RequestError, match=message):
        short_engine().submit(GenerationRequest("r", source_ids=(4,), shortlist=shortlist))


def test_a_model_that_scores_its_whole_vocabulary_takes_no_shortlist() -> None:
    engine = Engine(toy_bundle(), EngineConfig(slots=2), toy_graphs())
    with pytest.raises(RequestError, match="whole vocabulary"):
        engine.submit(GenerationRequest("r", source_ids=(4,), shortlist=np.array([3])))


def test_a_cancelled_row_leaves_the_others_theirs() -> None:
    engine = short_engine()
    first, second, *_ = requests()
    engine.submit(first, second)
    story = Story()
    events = engine.step()
    engine.cancel(first.request_id)
    while engine.has_work:
        events += engine.step()
    for event in events:
        if event.request_id == second.request_id:
            story.add(event)
    assert comparable_story(story) == comparable_story(run_alone(short_engine(), second))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10_000)), max_size=30))
@settings(max_examples=60, deadline=None)
def test_every_token_that_is_used_has_a_column_of_its_own(changes: list[tuple[bool, int]]) -> None:
    size = 3 * UNION_WIDTH_STEP
    union = ShortlistUnion(size)
    rows: list[np.ndarray[Any, Any]] = []
    columns: list[np.ndarray[Any, Any]] = []
    for grows, seed in changes:
        rng = np.random.default_rng(seed)
        if grows or not rows:
            rows.append(np.flatnonzero(rng.random(size) < rng.random() ** 3))
            union.add(rows[-1])
            columns.append(union.columns(rows[-1]))
        else:
            number = seed % len(rows)
            union.remove(rows.pop(number))
            columns.pop(number)
        for ids, column in zip(rows, columns, strict=True):
            assert (union.ids[column] == ids).all()
            assert (column < union.width).all()
    if union.is_sparse:
        union.pack()
        assert not union.is_sparse
    assert all((union.ids[union.columns(ids)] == ids).all() for ids in rows)


def test_columns_are_used_again() -> None:
    union = ShortlistUnion(100 * UNION_WIDTH_STEP)
    for first in range(0, 50 * UNION_WIDTH_STEP, UNION_WIDTH_STEP):
        ids = np.arange(first, first + UNION_WIDTH_STEP)
        union.add(ids)
        union.remove(ids)
    assert union.width == UNION_WIDTH_STEP
