"""Two runs: known differences are found, and intervals cover the truth."""

import numpy as np
import pytest

from loadtest.statistics.comparison import (
    differences,
    in_words,
    ratio_of_medians,
)
from loadtest.statistics.figures import figures_of
from tests.loadtest.recordings import recording_of, streamed


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
    first, second, same = (
        figures_of(
            recording_of(streamed(i * 0.1, 0.1 * k + i % 7 / 100, 0.02, 5) for i in range(50))
        )
        for k in (1, 2, 1)
    )
    found = differences(first, second)[0]
    assert found.is_significant
    text = in_words(found, ("before", "after"))
    assert "of after is longer than that of before: ratio of medians 1." in text
    unchanged = differences(first, same)[0]
    assert "does not differ" in in_words(unchanged, ("before", "after"))


def test_measures_that_both_runs_have_are_compared() -> None:
    first, second = (
        figures_of(recording_of(streamed(i * 0.1, 0.1 * k, 0.02, 5) for i in range(50)))
        for k in (1, 2)
    )
    found = {each.measure: each for each in differences(first, second)}
    assert {*found} == {"ttft", "tpot", "e2e"}
    assert found["ttft"].ratio.value == pytest.approx(2.0)
