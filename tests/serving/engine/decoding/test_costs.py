"""Drafts are verified where that saves time, by what was measured."""

from serving.engine.decoding.speculative_decoding import NUM_AFTER, PATIENCE, Costs


def measure_costs(
    plain: float, verified: float, num_rows: int = 2, after: float | None = None
) -> Costs:
    """after: what the steps after a verification take, if not what others take."""
    costs = Costs()
    costs.record(False, num_rows, plain)
    for _ in range(40):
        costs.record(True, num_rows, verified)
        for _ in range(NUM_AFTER):
            costs.record(False, num_rows, after or plain)
        costs.record(False, num_rows, plain)
    return costs


def test_the_tokens_hoped_for_must_make_up_for_the_longer_step() -> None:
    costs = measure_costs(plain=1.0, verified=2.0)
    assert costs.is_worthwhile(2, 3.0)
    assert not costs.is_worthwhile(2, 1.9)
    assert not measure_costs(plain=2.0, verified=1.0).is_worthwhile(2, 0.0)


def test_they_must_make_up_for_slow_steps_afterwards_too() -> None:
    costs = measure_costs(plain=1.0, verified=2.0, after=1.75)
    assert costs.is_worthwhile(2, 6.0)
    assert not costs.is_worthwhile(2, 4.0)


def test_verifications_in_a_row_share_what_comes_after_them() -> None:
    costs = measure_costs(plain=1.0, verified=2.0, after=1.75)
    for _ in range(40):
        for _ in range(4):
            costs.record(True, 2, 2.0)
        for _ in range(NUM_AFTER):
            costs.record(False, 2, 1.75)
    assert costs.is_worthwhile(2, 4.0)


def test_what_is_unknown_is_tried_once_there_is_something_to_compare_it_with() -> None:
    costs = measure_costs(plain=1.0, verified=9.0)
    assert costs.is_worthwhile(3, 0.1)
    costs.record(False, 3, 1.0)
    for _ in range(2):  # the first verification of all takes longer than any other
        assert costs.is_worthwhile(3, 0.1)
        costs.record(True, 3, 9.0)
        for _ in range(NUM_AFTER):
            costs.record(False, 3, 1.0)
    assert not costs.is_worthwhile(3, 0.1)


def test_one_slow_step_is_no_measure() -> None:
    costs = measure_costs(plain=1.0, verified=1.5)
    costs.record(True, 2, 100.0)
    for _ in range(NUM_AFTER):
        costs.record(False, 2, 100.0)
    assert costs.is_worthwhile(2, 2.0)


def test_where_other_rows_come_in_between_nothing_is_learned() -> None:
    costs = measure_costs(plain=1.0, verified=1.5)
    for _ in range(100):
        costs.record(True, 2, 100.0)
        costs.record(False, 3, 1.0)
    assert costs.is_worthwhile(2, 2.0)


def test_what_does_not_pay_is_tried_again_at_last() -> None:
    costs = measure_costs(plain=1.0, verified=4.0)
    tries = [costs.is_worthwhile(2, 2.0) for _ in range(3 * PATIENCE)]
    assert sum(tries) == 3 and not any(tries[: PATIENCE - 1])
