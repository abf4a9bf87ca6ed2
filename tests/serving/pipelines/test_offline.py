"""Lines that are worked on at once: their order, how far ahead they are read, and how it ends."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from serving.pipelines.streams import in_order


async def test_results_come_in_the_order_of_the_items() -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0.001 * (7 - number % 7))
        return number

    assert [each async for each in in_order(work, range(50), 10)] == [*range(50)]


async def test_so_many_items_are_taken_ahead_and_no_more() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    async def work(number: int) -> int:
        return number

    results = in_order(work, items(), 4)
    assert await anext(results) == 0
    await asyncio.sleep(0.1)
    assert len(taken) == 5  # four at work, and one that waits for room
    assert [each async for each in results] == [*range(1, 20)]


async def test_a_result_does_not_wait_for_the_next_item() -> None:
    told = threading.Event()

    def items() -> Iterator[int]:
        yield 0
        told.wait(10)
        yield 1

    async def work(number: int) -> int:
        return number

    results = in_order(work, items(), 4)
    assert await asyncio.wait_for(anext(results), 5) == 0
    told.set()
    assert [each async for each in results] == [1]


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
