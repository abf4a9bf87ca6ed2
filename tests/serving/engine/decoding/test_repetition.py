"""Loops: the same tokens in a row, four times, where the source repeats nothing so often."""

import pytest

from serving.engine.decoding.repetition import LoopDetector, loop_start

SOURCE = [*range(100, 120)]


@pytest.mark.parametrize(
    ("ids", "start"),
    [
        ([], None),
        ([1, 2, 3, 4, 5, 6, 7, 8], None),
        ([1, 2, 3, 4] * 3, None),
        ([1, 2, 3, 4] * 4, 7),  # the second time up to its fourth token
        ([9, 8, *[1, 2, 3, 4] * 4], 9),
        ([9, 8, *[1, 2, 3] * 6], 8),  # a period of three
        ([9, 8, *[1, 2] * 9], 7),
        ([9, 8, *[1] * 12], 6),
        ([9, *[1, 2, 3, 4, 5, 6] * 4], 10),  # a period of six
        ([1, 2, 3, 4, 7, 1, 2, 3, 4, 8, 1, 2, 3, 4, 9, 1, 2, 3, 4, 5], 18),  # apart
        ([1, 2, 3, 4, 7, 1, 2, 3, 4, 8, 1, 2, 3, 4, 9], None),
        ([1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4], None),
    ],
)
def test_loops_are_found_where_their_last_run_began(ids: list[int], start: int | None) -> None:
    assert loop_start(ids, SOURCE) == start


@pytest.mark.parametrize(
    ("source", "num_repeats", "loops"),
    [
        (SOURCE, 4, True),
        ([5, 6] * 4, 4, False),
        ([5, 6] * 4, 5, True),
        ([5, 6, 7] * 10, 10, False),
        ([5, 6, 7] * 10, 11, True),
        ([*range(50), 5, 6, *range(60, 80), 5, 6], 4, True),
    ],
)
def test_what_the_source_repeats_may_be_repeated(
    source: list[int], num_repeats: int, loops: bool
) -> None:
    assert (loop_start([1, 2, 3, 4] * num_repeats, source) is not None) is loops


def test_given_tokens_are_before_any_loop() -> None:
    assert loop_start([1, 2, 3, 4] * 5, SOURCE, num_forced=18) == 18
    assert loop_start([1, 2, 3, 4] * 5, SOURCE, num_forced=20) is None


def test_certain_tokens_never_become_fewer_and_end_before_the_loop() -> None:
    ids = [7, *[1, 2, 3, 4, 5] * 2, 6, 8, 9, *[1, 2, 3] * 8]
    repetition = LoopDetector(SOURCE)
    certain = []
    for token_id in ids:
        repetition.push(token_id)
        certain.append(repetition.num_certain)

    assert certain == sorted(certain)
    assert certain[-1] == repetition.loop_start == loop_start(ids, SOURCE)
    assert certain[13] == 14  # the run that ended is certain
