"""The best tokens of rows are those of the whole vocabulary, though mostly read off a window."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engine.arrays import Array
from serving.engine.decoding.beam_hypotheses import Node, best_tokens, common_node, tokens_until
from serving.engine.decoding.scores import Edited, Scores
from serving.requests.request import TokenEvent

VOCAB, WINDOW = 40, 6


def scores_of(logp: Array) -> Scores:
    top_ids = np.argsort(-logp, axis=1, kind="stable")[:, :WINDOW]
    top_logp = np.take_along_axis(logp, top_ids, axis=1)
    return Scores(logp, top_logp, top_ids, np.zeros(len(logp), np.float32))


def by_sorting(values: Array, count: int) -> list[list[float]]:
    order = np.argsort(-values, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(values, order, axis=1).tolist()


@settings(max_examples=200)
@given(data=st.data(), seed=st.integers(0, 2**32), count=st.integers(1, 12))
def test_they_are_those_of_the_whole_vocabulary(data: st.DataObject, seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    logp = np.log(rng.dirichlet(np.full(VOCAB, 0.3), 5) + 1e-9).astype(np.float32)
    scores, expected = scores_of(logp), logp.copy()
    for row in data.draw(st.sets(st.integers(0, 4))):
        some = data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=30, unique=True))
        expected[row, some] += data.draw(st.sampled_from([-np.inf, -2.0, -0.1, 3.0]))
    is_edited = np.asarray((expected != logp).any(axis=1))
    if is_edited.any():
        is_raised = np.asarray((expected > logp).any(axis=1))
        garbage = np.where(is_edited[:, None], expected, 7.0).astype(np.float32)
        none = np.zeros(5, bool)
        scores.edited = Edited(is_edited, is_raised, none, none, garbage)
    rows = np.array([4, 1, 0])
    values, ids = best_tokens(scores, rows, count)
    assert values.tolist() == by_sorting(expected[rows].astype(np.float64), count)
    for row, value, token_ids in zip(rows.tolist(), values, ids, strict=True):
        assert expected[row, token_ids].tolist() == value.tolist()
        assert len({*token_ids.tolist()}) == count


def test_equal_values_come_by_token_id() -> None:
    scores = scores_of(np.full((1, VOCAB), -1.0, np.float32))
    for count in (3, WINDOW, WINDOW + 4):
        assert best_tokens(scores, np.array([0]), count)[1].tolist() == [list(range(count))]


def chain(*token_ids: int, after: Node | None = None) -> Node:
    for token_id in token_ids:
        after = Node(TokenEvent("r", token_id, 0.0), after)
    assert after is not None
    return after


def test_the_common_node_is_where_hypotheses_part() -> None:
    stem = chain(1, 2)
    left, right = chain(3, 4, after=stem), chain(5, after=stem)
    assert common_node([left, right]) is stem
    assert common_node([left, stem]) is stem
    assert common_node([left, left]) is left
    assert common_node([left, chain(9)]) is None
    assert common_node([left, None]) is None
    assert [token.token_id for token in tokens_until(left, 1)] == [2, 3, 4]


@pytest.mark.parametrize("count", [1, WINDOW])
def test_unedited_rows_are_read_off_the_window(count: int) -> None:
    scores = scores_of(np.log(np.random.default_rng(0).dirichlet(np.ones(VOCAB), 2)))
    scores.scored = scores.scored[:, :0]  # reading the whole row would fail
    assert best_tokens(scores, np.array([1]), count)[1].tolist() == [
        scores.top_ids[1, :count].tolist()
    ]
