"""Which plans there are on which machines, and which one is chosen by what figures."""

import random

import pytest

from serving.engine.runtime.plan import (
    Allowance,
    Choice,
    Plan,
    Rounds,
    candidates,
    choose,
    default_plan,
    spread,
    unmeasured_plan,
)

MACHINES = [1, 2, 3, 4, 6, 7, 8, 12, 16, 63, 64, 96]
ONE, TWO = Plan(1, 2), Plan(2, 1)


@pytest.mark.parametrize("cpus", MACHINES)
def test_no_plan_asks_for_more_threads_than_there_are_cpus(cpus: int) -> None:
    for plan in [*candidates(cpus), default_plan(cpus), *(spread(cpus, n) for n in range(1, 9))]:
        assert 1 <= plan.num_threads <= cpus


@pytest.mark.parametrize("cpus", MACHINES)
def test_candidates_differ_and_begin_with_the_default(cpus: int) -> None:
    plans = candidates(cpus)
    assert plans[0] == default_plan(cpus)
    assert len({*plans}) == len(plans) <= 4
    assert Plan(cpus, 1) in plans


def test_a_machine_with_one_cpu_has_one_plan() -> None:
    assert candidates(1) == [Plan(1, 1)]


def test_the_plans_of_two_and_of_many_cpus() -> None:
    assert candidates(2) == [TWO, ONE]
    assert candidates(4) == [Plan(2, 2), Plan(4, 1), Plan(1, 4)]
    assert candidates(64) == [Plan(16, 4), Plan(64, 1), Plan(32, 2), Plan(8, 8)]


@pytest.mark.parametrize(
    ("allowance", "plan"),
    [
        (Allowance(8), None),
        (Allowance(8, engines=2), Plan(2, 4)),
        (Allowance(8, threads=3), Plan(2, 3)),
        (Allowance(8, engines=3, threads=5), Plan(3, 5)),
        (Allowance(2, engines=5), Plan(5, 1)),
        (Allowance(2, threads=5), Plan(1, 5)),
    ],
)
def test_what_is_given_leaves_one_plan_or_the_choice(allowance: Allowance, plan: Plan) -> None:
    assert allowance.given == plan


@pytest.mark.parametrize("cpus", MACHINES[1:])
def test_by_default_two_engines_at_least_are_side_by_side(cpus: int) -> None:
    assert default_plan(cpus).engines >= 2
    assert default_plan(cpus).threads <= 4


def test_without_http_few_cpus_get_an_engine_each() -> None:
    assert unmeasured_plan(Allowance(4)) == Plan(4, 1)
    assert unmeasured_plan(Allowance(4, serves_http=True)) == Plan(2, 2)
    assert unmeasured_plan(Allowance(64)) == Plan(16, 4)


def rounds(throughput: float, step: float, noise: float = 0.0, seed: int = 0, n: int = 8) -> Rounds:
    chance = random.Random(seed)
    return Rounds(
        tuple(throughput * chance.uniform(1 - noise, 1 + noise) for _ in range(n)),
        tuple(step * chance.uniform(1 - noise, 1 + noise) for _ in range(n)),
    )


def test_the_plan_with_more_throughput_is_chosen() -> None:
    figures = {ONE: rounds(1000, 0.004), TWO: rounds(1250, 0.006)}
    assert choose(ONE, figures) == Choice(TWO, is_clear=True)


def test_a_plan_with_less_is_not() -> None:
    figures = {ONE: rounds(1000, 0.004), TWO: rounds(900, 0.006)}
    assert choose(ONE, figures) == Choice(ONE, is_clear=True)


def test_a_gain_of_nothing_worth_keeps_the_default() -> None:
    figures = {ONE: rounds(1000, 0.004), TWO: rounds(1010, 0.006)}
    assert choose(ONE, figures).plan == ONE


def test_a_lone_request_does_not_wait_more_than_twice_as_long() -> None:
    many, some, few = Plan(64, 1), Plan(32, 2), Plan(16, 4)
    figures = {few: rounds(5000, 0.005), many: rounds(9000, 0.015), some: rounds(7000, 0.009)}
    assert choose(few, figures).plan == some


def test_a_default_that_keeps_a_lone_request_waiting_is_left() -> None:
    figures = {ONE: rounds(1000, 0.013), TWO: rounds(900, 0.006)}
    assert choose(ONE, figures).plan == TWO


def test_too_few_rounds_choose_nothing() -> None:
    figures = {ONE: rounds(1000, 0.004, n=3), TWO: rounds(2000, 0.004, n=3)}
    assert choose(ONE, figures) == Choice(ONE, is_clear=False)
    assert choose(ONE, {}) == Choice(ONE, is_clear=False)


@pytest.mark.parametrize("seed", range(5))
def test_noise_alone_rarely_makes_a_choice(seed: int) -> None:
    """Rounds that differ by chance, as much as a third: at most one in twenty is taken for more."""
    others = 0
    for number in range(200):
        one = rounds(1000, 0.004, noise=0.33, seed=10_000 * seed + 2 * number)
        two = rounds(1000, 0.004, noise=0.33, seed=10_000 * seed + 2 * number + 1)
        others += choose(ONE, {ONE: one, TWO: two}).plan != ONE
    assert others <= 20


def test_a_large_gain_is_seen_through_noise() -> None:
    found = [
        choose(
            ONE, {ONE: rounds(1000, 0.004, 0.1, 2 * i), TWO: rounds(1400, 0.005, 0.1, 2 * i + 1)}
        )
        for i in range(50)
    ]
    assert all(choice.plan == TWO for choice in found)


def test_beside_http_more_threads_must_gain_more() -> None:
    figures = {TWO: rounds(1000, 0.006), ONE: rounds(1150, 0.004)}
    assert choose(TWO, figures) == Choice(ONE, is_clear=True)
    assert choose(TWO, figures, serves_http=True) == Choice(TWO, is_clear=True)
    many = {**figures, ONE: rounds(1300, 0.004)}
    assert choose(TWO, many, serves_http=True) == Choice(ONE, is_clear=True)
    assert choose(ONE, {ONE: rounds(1000, 0.004), TWO: rounds(1150, 0.006)}, True).plan == TWO
