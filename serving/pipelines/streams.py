"""Merge streams, split a stream into batches, and process items concurrently in order."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Yield the items of several streams as they arrive.

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
    """Yield lists of the items that have arrived since the last list; the slower the reader, the
    longer the lists.
    """
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


async def in_order(
    work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item], max_at_work: int
) -> AsyncGenerator[Result, None]:
    """Process many items concurrently and yield the results in the order of the items.

    Items are taken on another thread, because they may come from a slow pipe. A result is yielded
    as soon as it and those before it are complete.

    max_at_work: maximum number of items in progress.
    """
    started: asyncio.Queue[asyncio.Task[Result] | None] = asyncio.Queue()
    feeder = Feeder(asyncio.get_running_loop(), max_at_work)
    reading = asyncio.create_task(
        asyncio.to_thread(
            feeder.feed, items, lambda item: started.put_nowait(asyncio.create_task(work(item)))
        )
    )
    reading.add_done_callback(lambda _: started.put_nowait(None))
    try:
        while (task := await started.get()) is not None:
            yield await task
            feeder.allow_one_more()
        await reading
    finally:
        feeder.stop()
        while not started.empty():
            if (task := started.get_nowait()) is not None:
                task.cancel()


class Feeder:
    """Takes items on a thread and passes them to an event loop, up to `max_ahead` of them ahead.

    The thread does not wait for the loop after each item: while engines run, that takes
        milliseconds, and the engines would wait for items.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_ahead: int) -> None:
        self._loop = loop
        self._room = threading.Semaphore(max_ahead)
        self._is_stopped = False

    def feed(self, items: Iterable[Item], take: Callable[[Item], None]) -> None:
        """Call `take` on the loop for each item."""
        for item in items:
            self._room.acquire()
            if self._is_stopped:
                return
            self._loop.call_soon_threadsafe(take, item)

    def allow_one_more(self) -> None:
        self._room.release()

    def stop(self) -> None:
        self._is_stopped = True
        self._room.release()
