"""Drafts are verified where that saves time, by what was measured."""

from serving.engine.speculation.costs import Costs


def measured(plain: float, verified: float, num_rows: int = 2) -> Costs:
    costs = Costs()
    for is_verified, seconds in ((False, plain), (True, verified)):
        for _ in range(2):
            costs.note(is_verified, num_rows, seconds)
    return costs


def test_the_tokens_hoped_for_must_make_up_for_the_longer_run() -> None:
    costs = measured(plain=1.0, verified=2.0)
    assert costs.pays(2, 2.1)
    assert not costs.pays(2, 1.9)
    assert not measured(plain=2.0, verified=1.0).pays(2, 0.0)


def test_what_is_not_known_is_tried() -> None:
    costs = measured(plain=1.0, verified=9.0)
    assert costs.pays(3, 0.1)
    costs.note(True, 3, 9.0)
    costs.note(False, 3, 1.0)
    assert costs.pays(3, 0.1)  # the first run of its kind says nothing
    costs.note(True, 3, 9.0)
    costs.note(False, 3, 1.0)
    assert not costs.pays(3, 0.1)


def test_one_slow_run_is_no_measure() -> None:
    costs = measured(plain=1.0, verified=1.5)
    costs.note(True, 2, 100.0)
    assert costs.pays(2, 1.5)


def test_what_does_not_pay_is_tried_again_at_last() -> None:
    costs = measured(plain=1.0, verified=4.0)
    tries = [costs.pays(2, 2.0) for _ in range(200)]
    assert not any(tries[:50]) and any(tries)
