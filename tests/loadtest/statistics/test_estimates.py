"""Percentiles are numpy's, and their intervals hold what they promise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.statistics.estimates import (
    PERCENTS,
    Samples,
    distribution,
    percentile,
    proportion,
)


def test_percentiles_are_numpys_linear_ones() -> None:
    seconds = np.random.default_rng(7).lognormal(-3, 1, 5000)
    found = distribution(Samples(seconds))
    expected = np.percentile(seconds, PERCENTS)
    assert [found.percentiles[p].value for p in PERCENTS] == pytest.approx(expected.tolist())
    assert found.mean.value == pytest.approx(seconds.mean())
    assert found.maximum.value == seconds.max()


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=300), st.sampled_from([50.0, 90.0, 95.0])
)
def test_an_interval_holds_its_figure(values: list[float], percent: float) -> None:
    found = percentile(Samples(np.sort(values)), percent)
    if len(values) * (1 - percent / 100) < 1 - 1e-9:
        assert found.value is None
        assert f"p{percent:g} needs" in found.reason
        return
    assert found.value is not None
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high


@pytest.mark.parametrize(
    ("percent", "count"), [(50, 2), (90, 10), (95, 20), (99, 100), (99.9, 1000)]
)
def test_too_few_samples_give_no_figure(percent: float, count: int) -> None:
    assert percentile(Samples(np.arange(count - 1.0)), percent).value is None
    assert percentile(Samples(np.arange(float(count))), percent).value is not None


def test_few_samples_bound_a_percentile_on_one_side_only() -> None:
    few, enough = (percentile(Samples(np.arange(float(n))), 99) for n in (367, 600))
    assert few.low is not None
    assert few.high is None
    assert enough.high is not None


def test_intervals_of_independent_samples_cover_the_truth() -> None:
    rng = np.random.default_rng(1)
    truth = -math.log(1 - 0.95)
    intervals = [percentile(Samples(np.sort(rng.exponential(size=400))), 95) for _ in range(500)]
    covered = np.mean([i.low <= truth <= i.high for i in intervals])  # type: ignore[operator]
    assert covered >= 0.93


def test_intervals_of_clustered_samples_cover_the_truth() -> None:
    """Gaps of one stream are alike: taken as independent they would look far too exact."""
    rng = np.random.default_rng(2)
    clusters = np.repeat(np.arange(200), 30)
    truth, covered, naive = 0.0, 0, 0
    for _ in range(300):
        values = rng.normal(size=200)[clusters] + 0.1 * rng.normal(size=6000)
        order = np.argsort(values)
        found = percentile(Samples(values[order], clusters[order]), 50)
        alone = percentile(Samples(values[order]), 50)
        covered += found.low <= truth <= found.high  # type: ignore[operator]
        naive += alone.low <= truth <= alone.high  # type: ignore[operator]
    assert covered / 300 >= 0.92
    assert naive / 300 < 0.5


def test_no_samples_are_no_figures() -> None:
    found = distribution(Samples(np.empty(0)))
    assert found.count == 0
    assert {e.value for e in (found.mean, found.maximum, *found.percentiles.values())} == {None}


def test_a_share_has_wilsons_interval() -> None:
    found = proportion(0, 10)
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.2775, abs=1e-4)
    assert proportion(5, 10).low == pytest.approx(0.2366, abs=1e-4)
