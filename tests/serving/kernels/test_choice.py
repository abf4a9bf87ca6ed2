"""The likeliest tokens of the native kernels, against ONNX Runtime's TopK and exact sums.

ONNX Runtime's LogSoftmax is no measure: where it adds in eight lanes, it is 7e-6 off.
"""

import numpy as np
import pytest
from onnx import helper

from serving.kernels.library import native_kernels
from tests.serving.kernels.models import Array
from tests.serving.kernels.operators import run_nodes

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

TOLERANCE = 4e-6  # of log-probabilities: two roundings of a logarithm of up to 32


def choose(
    scores: Array, number: int = 20, threads: int = 1, wants_logp: bool = True
) -> list[Array]:
    inputs, outputs = ["scores", "wants_logp"], ["top_logp", "top_ids", "log_normaliser"]
    node = helper.make_node("TokenChoice", inputs, outputs, domain="attendant", number=number)
    feeds = {"scores": scores, "wants_logp": np.array(wants_logp)}
    return run_nodes([node], feeds, outputs, threads)


def plain_choose(scores: Array, number: int = 20) -> list[Array]:
    nodes = [helper.make_node("TopK", ["scores", "number"], ["top", "top_ids"], axis=-1)]
    feeds = {"scores": scores, "number": np.array([number], np.int64)}
    top, top_ids = run_nodes(nodes, feeds, ["top", "top_ids"])
    exact = scores.astype(np.float64)
    largest = exact.max(-1, keepdims=True)
    normaliser = largest + np.log(np.exp(exact - largest).sum(-1, keepdims=True))
    return [top - normaliser, top_ids, normaliser[:, 0]]


def scores_of(rows: int, columns: int) -> Array:
    random = np.random.default_rng(rows + columns)
    return (random.standard_normal((rows, columns)) * 5).astype(np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("number", [1, 4, 20, 64])
@pytest.mark.parametrize("columns", [64, 65, 1000, 4096, 4097, 32001])
@pytest.mark.parametrize("rows", [1, 7])
def test_tokens_are_those_of_the_operators(
    rows: int, columns: int, number: int, threads: int
) -> None:
    scores = scores_of(rows, columns)
    logp, ids, normaliser = choose(scores, number, threads)
    expected_logp, expected_ids, expected_normaliser = plain_choose(scores, number)
    assert np.array_equal(ids, expected_ids)
    assert np.abs(logp - expected_logp).max() < TOLERANCE
    assert np.abs(normaliser - expected_normaliser).max() < TOLERANCE


def test_without_log_probabilities_scores_are_relative_to_the_greatest() -> None:
    scores = scores_of(3, 5000)
    top, ids, largest = choose(scores, wants_logp=False)
    assert np.array_equal(largest, scores.max(axis=1))
    assert np.array_equal(ids, choose(scores)[1])
    assert np.array_equal(top, np.take_along_axis(scores, ids, axis=1) - largest[:, None])


def test_log_probabilities_are_wanted_where_nothing_is_said() -> None:
    scores, outputs = scores_of(3, 5000), ["top_logp", "top_ids", "log_normaliser"]
    node = helper.make_node("TokenChoice", ["scores"], outputs, domain="attendant", number=20)
    actual = run_nodes([node], {"scores": scores}, outputs)
    for each, expected in zip(actual, choose(scores), strict=True):
        assert np.array_equal(each, expected)


def test_of_equals_the_first_comes_first() -> None:
    """Few different scores, in rising and in falling order, and all equal."""
    random = np.random.default_rng(0)
    few = random.integers(0, 5, (4, 5000)).astype(np.float32)
    rising = np.sort(random.integers(0, 50, (2, 5000)), axis=-1).astype(np.float32)
    scores = np.concatenate([few, rising, rising[:, ::-1], np.zeros((1, 5000), np.float32)])
    assert np.array_equal(choose(scores)[1], plain_choose(scores)[1])


def test_bans_rank_last_and_weigh_nothing() -> None:
    scores = scores_of(3, 9000)
    scores[0, 10:] = scores[1, :8990] = -np.inf
    scores[2, ::2] = -np.inf
    logp, ids, normaliser = choose(scores)
    expected_logp, expected_ids, expected_normaliser = plain_choose(scores)
    assert np.array_equal(ids, expected_ids)
    np.testing.assert_allclose(logp, expected_logp, atol=TOLERANCE)
    np.testing.assert_allclose(normaliser, expected_normaliser, atol=TOLERANCE)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_log_probabilities_of_undefined_scores_are_undefined(value: float) -> None:
    scores = scores_of(3, 5000)
    scores[1, 4500] = value
    scores[2] = -np.inf
    logp, ids, normaliser = choose(scores)
    assert np.isnan(logp[1:]).all() and np.isnan(normaliser[1:]).all()
    assert not np.isnan(logp[0]).any()
    number_ranked = scores[1].copy()
    number_ranked[np.isnan(number_ranked)] = -np.inf
    assert np.array_equal(ids[1], np.argsort(-number_ranked, kind="stable")[:20])
    assert np.array_equal(ids[2], np.arange(20))


def test_a_row_has_the_same_bits_alone() -> None:
    scores = scores_of(130, 5000)
    together = choose(scores, threads=2)
    for row in (0, 64, 129):
        alone = choose(scores[row : row + 1])
        for one, all_rows in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_rows[row])


def test_no_rows() -> None:
    assert [each.shape for each in choose(scores_of(0, 50))] == [(0, 20), (0, 20), (0,)]


def test_wrong_shapes_and_numbers_are_errors() -> None:
    with pytest.raises(Exception, match="at least `number` columns"):
        choose(scores_of(2, 19))
    with pytest.raises(Exception, match="at least `number` columns"):
        choose(scores_of(2, 19)[0])
    for number in (0, 65):
        with pytest.raises(Exception, match="number must be 1 to 64"):
            choose(scores_of(2, 100), number)
