"""Open loops have the rate, the regularity and the profile that they were asked for."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from loadtest.generator.arrivals import Flat, Ramp, Step, arrival_times
from loadtest.plan import ArrivalPlan

SECONDS = 200.0


def times(warm_up: float = 0.0, **plan: Any) -> np.ndarray:
    return np.array(list(arrival_times(ArrivalPlan(**plan), 7, warm_up, SECONDS - warm_up)))


@pytest.mark.parametrize(
    ("plan", "variation"),
    [
        ({"kind": "constant"}, 0.0),
        ({"kind": "poisson"}, 1.0),
        ({"kind": "gamma", "burstiness": 0.25}, 2.0),
        ({"kind": "gamma", "burstiness": 4.0}, 0.5),
    ],
)
def test_a_flat_rate_is_kept_and_gaps_vary_as_they_should(
    plan: dict[str, Any], variation: float
) -> None:
    found = times(rate=100.0, **plan)
    assert len(found) == pytest.approx(100 * SECONDS, rel=0.03)
    assert np.all((np.diff(found) >= 0) & (found[1:] < SECONDS))
    gaps = np.diff(found)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03, abs=1e-6)


def test_the_seed_alone_decides() -> None:
    plan = ArrivalPlan(kind="poisson", rate=10.0)
    one, same, other = (list(arrival_times(plan, seed, 0, 10)) for seed in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize("to_rate", [10.0, 300.0])
def test_a_ramp_goes_evenly_from_one_rate_to_the_other(to_rate: float) -> None:
    found = times(kind="ramp", rate=100.0, to_rate=to_rate, warm_up=40.0)
    rates = np.histogram(found, bins=5, range=(0, SECONDS))[0] / 40
    slope = (to_rate - 100) / 8
    expected = [100, *(100 + slope * eighth for eighth in (1, 3, 5, 7))]
    assert rates == pytest.approx(expected, rel=0.06)


def test_a_step_is_in_the_middle_of_the_window() -> None:
    found = times(kind="step", rate=100.0, to_rate=50.0, warm_up=100.0)
    rates = np.histogram(found, bins=4, range=(0, SECONDS))[0] / 50
    assert rates == pytest.approx([100, 100, 100, 50], rel=0.06)


@pytest.mark.parametrize(
    "profile",
    [Flat(5.0), Step(5.0, 20.0, 2.0), Ramp(5.0, 20.0, 2.0, 4.0), Ramp(20.0, 0.5, 1.0, 3.0)],
)
def test_times_grow_without_jumps(profile: Flat | Step | Ramp) -> None:
    found = [profile.time_of(expected / 100) for expected in range(12_000)]
    gaps = [after - before for before, after in pairwise(found)]
    assert min(gaps) > 0
    assert max(gaps) <= 0.01 / 0.5 + 1e-9
