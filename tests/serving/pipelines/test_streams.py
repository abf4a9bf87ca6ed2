"""Streams of streams: nothing lost, failures told, everything closed."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from serving.pipelines.streams import in_batches, in_order, merge

Wrap = Callable[[AsyncGenerator[int, None]], AsyncGenerator[Any, None]]
WRAPS: list[Wrap] = [in_batches, lambda stream: merge([stream, counting(0, [])])]


async def counting(end: int, closed: list[int], fails: bool = False) -> AsyncGenerator[int, None]:
    try:
        for number in range(end):
            yield number
            await asyncio.sleep(0)
        if fails:
            raise ValueError("broken")
    finally:
        closed.append(end)


async def test_merged_streams_keep_their_own_order() -> None:
    closed: list[int] = []

    items = [item async for item in merge([counting(3, closed), counting(5, closed)])]

    assert sorted(items) == [0, 0, 1, 1, 2, 2, 3, 4]
    assert closed == [3, 5]


async def test_what_waits_for_a_slow_reader_comes_together() -> None:
    batches = []
    async for batch in in_batches(counting(6, [])):
        batches.append(batch)
        await asyncio.sleep(0.01)

    assert [item for batch in batches for item in batch] == [0, 1, 2, 3, 4, 5]
    assert len(batches) < 6


@pytest.mark.parametrize("wrap", WRAPS)
async def test_a_failure_comes_after_what_came_before_it(wrap: Wrap) -> None:
    stream = wrap(counting(2, [], fails=True))
    items = []

    with pytest.raises(ValueError, match="broken"):
        async for item in stream:
            items += item if isinstance(item, list) else [item]
    assert items == [0, 1]


@pytest.mark.parametrize("wrap", WRAPS)
async def test_closing_closes(wrap: Wrap) -> None:
    closed: list[int] = []
    stream = wrap(counting(1000, closed))

    await anext(stream)
    await stream.aclose()

    assert closed == [1000]


async def test_results_come_in_the_order_of_the_items() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0.001 * (7 - number % 7))
        return number

    assert [result async for result in in_order(work, range(50), 10)] == [*range(50)]


async def test_so_many_items_are_taken_ahead_and_no_more() -> None:
    taken_items: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken_items.append(number)
            yield number

    async def work(number: int) -> int:
        return number

    results = in_order(work, items(), 4)
    assert await anext(results) == 0
    await asyncio.sleep(0.1)
    assert len(taken_items) == 5  # four at work, and one that waits for room
    assert [result async for result in results] == [*range(1, 20)]


async def test_a_result_does_not_wait_for_the_next_item() -> None:
    was_cancelled = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        was_cancelled.wait(10)
        yield 1

    async def work(number: int) -> int:
        return number

    results = in_order(work, items(), 4)
    assert await asyncio.wait_for(anext(results), 5) == 0
    was_cancelled.set()
    assert [result async for result in results] == [1]


async def test_an_item_that_cannot_be_read_is_told_after_the_results_before_it() -> None:
    def items() -> Iterator[int]:
        yield 0
        raise ValueError("line 2")

    async def work(number: int) -> int:
        await asyncio.sleep(0.02)
        return number

    results = in_order(work, items(), 4)
    assert await anext(results) == 0
    with pytest.raises(ValueError, match="line 2"):
        await anext(results)


async def test_work_that_fails_ends_the_rest() -> None:
    cancelled: list[int] = []

    async def work(number: int) -> int:
        if number == 1:
            await asyncio.sleep(0.2)
            raise ValueError("no")
        try:
            await asyncio.sleep(60 if number else 0)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    results = in_order(work, range(1000), 4)
    assert await anext(results) == 0
    with pytest.raises(ValueError, match="no"):
        await anext(results)
    await asyncio.sleep(0.05)
    assert cancelled
