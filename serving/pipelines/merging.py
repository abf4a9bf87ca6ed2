"""Merges streams in the order in which their items come, and cuts one stream into batches."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of several streams as they come.

    Closing the merged stream closes them all; the first failure ends them all.
    """
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield item
        return
    items: asyncio.Queue[T | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_drain(stream, items)) for stream in streams]
    try:
        async for item in _until_done(tasks, items):
            yield item
    finally:
        await _cancel(tasks)


async def in_batches(stream: AsyncGenerator[T, None]) -> AsyncGenerator[list[T], None]:
    """Yield what came since the last batch as the next one: as few as the reader is slow."""
    items: asyncio.Queue[T | None] = asyncio.Queue()
    task = asyncio.create_task(_drain(stream, items))
    try:
        is_open = True
        while is_open:
            came = [await items.get(), *(items.get_nowait() for _ in range(items.qsize()))]
            is_open = came[-1] is not None
            if batch := [item for item in came if item is not None]:
                yield batch
        await task
    finally:
        await _cancel([task])


async def _cancel(tasks: Sequence["asyncio.Task[None]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _drain(stream: AsyncGenerator[T, None], items: "asyncio.Queue[T | None]") -> None:
    """Put every item on the queue, then None, whether or not the stream failed."""
    try:
        async with aclosing(stream):
            async for item in stream:
                items.put_nowait(item)
    finally:
        items.put_nowait(None)


async def _until_done(
    tasks: list["asyncio.Task[None]"], items: "asyncio.Queue[T | None]"
) -> AsyncGenerator[T, None]:
    num_running = len(tasks)
    while num_running:
        item = await items.get()
        if item is not None:
            yield item
            continue
        num_running -= 1
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
