"""Two runs: known differences are found, and equal runs are called equal as often as promised."""

import numpy as np
import pytest

from loadtest.statistics.comparison import (
    difference,
    differences,
    in_words,
    mann_whitney,
    ratio_of_medians,
)
from loadtest.statistics.figures import figures_of
from tests.loadtest.recordings import recording_of, streamed


def test_mann_whitney_of_a_worked_example() -> None:
    """R's example of wilcox.test, W = 35; z = (|15 - 25| - 0.5) / sqrt(50 * 16 / 12) = 1.1635."""
    a = np.array([0.8, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46])
    b = np.array([1.15, 0.88, 0.90, 0.74, 1.21])
    larger, p = mann_whitney(a, b)
    assert larger == pytest.approx(15 / 50)
    assert p == pytest.approx(0.24462, abs=1e-4)


def test_ties_count_half() -> None:
    larger, p = mann_whitney(np.ones(30), np.ones(30))
    assert (larger, p) == (0.5, 1.0)


def test_equal_runs_differ_as_often_as_chance_lets_them() -> None:
    rng = np.random.default_rng(3)
    found = [
        mann_whitney(rng.lognormal(size=60), rng.lognormal(size=80))[1] < 0.05 for _ in range(600)
    ]
    assert 0.025 < np.mean(found) < 0.08


def test_intervals_of_the_ratio_cover_the_truth() -> None:
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        found = ratio_of_medians(rng.lognormal(size=101), 1.3 * rng.lognormal(size=80))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.3 <= found.high
    assert covered / 200 >= 0.91


def test_the_quick_bootstrap_is_the_plain_one() -> None:
    rng = np.random.default_rng(5)
    first, second = rng.lognormal(size=301), rng.lognormal(0.2, 1, size=251)
    plain = np.median(rng.choice(second, (4000, 251)), axis=1) / np.median(
        rng.choice(first, (4000, 301)), axis=1
    )
    found = ratio_of_medians(first, second)
    assert [found.low, found.high] == pytest.approx(np.quantile(plain, [0.025, 0.975]), rel=0.05)


def test_a_slower_run_is_called_slower() -> None:
    rng = np.random.default_rng(6)
    found = difference("ttft", rng.lognormal(-2, 0.3, 500), rng.lognormal(-1.8, 0.3, 500))
    text = in_words(found, ("before", "after"))
    assert found.is_significant
    assert "of after is longer than that of before" in text
    assert "p < 0.0001" in text
    values = rng.lognormal(-2, 0.3, 50)
    same = difference("ttft", values, rng.permutation(values))
    assert "beyond chance" in in_words(same, ("before", "after"))


def test_measures_that_both_runs_have_are_compared() -> None:
    first, second = (
        figures_of(recording_of(streamed(i * 0.1, 0.1 * k, 0.02, 5) for i in range(50)))
        for k in (1, 2)
    )
    found = {each.measure: each for each in differences(first, second)}
    assert {*found} == {"ttft", "tpot", "e2e"}
    assert found["ttft"].ratio.value == pytest.approx(2.0)
