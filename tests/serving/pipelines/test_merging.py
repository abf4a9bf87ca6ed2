"""Streams of streams: nothing lost, failures told, everything closed."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from serving.pipelines.streams import in_batches, merge

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
