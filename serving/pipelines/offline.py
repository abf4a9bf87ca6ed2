"""Gives the command line a model with an engine of its own: no server, the same results."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from serving.engine.config import EngineConfig
from serving.engine.runtime.plan import Allowance
from serving.pipelines.catalog import Catalog
from serving.pipelines.loading import load_model

# Rows of an engine that translates files: a product of 128 rows costs less a row than one of 64.
FILE_SLOTS = 128

Item = TypeVar("Item")
Result = TypeVar("Result")


@asynccontextmanager
async def opened(path: Path, config: EngineConfig) -> AsyncIterator[Catalog]:
    """Load one bundle as a catalog, and end its engines in the end. Raises BundleError or
    DeviceError.

    Its plan is what was measured when it was served here, or the default: a few lines are done
    before anything is measured.
    """
    loaded = load_model(path, config, Allowance(config.threads))
    try:
        yield Catalog([loaded.pipeline])
    finally:
        await loaded.engine.shutdown()


async def in_order(
    work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item], max_at_work: int
) -> AsyncGenerator[Result, None]:
    """Work on many items at once and yield the results in the order of the items.

    Items are taken on another thread, as they may come from a pipe that is in no hurry; a result is
    given as soon as it is there and those before it were given.

    max_at_work: most items that wait for their results at once.
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
    """Takes items on a thread and hands them to an event loop, so many ahead and no more.

    The thread does not wait for the loop after each item: beside engines at work that would take
    milliseconds, and the engines would wait for items.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_ahead: int) -> None:
        self._loop = loop
        self._room = threading.Semaphore(max_ahead)
        self._is_stopped = False

    def feed(self, items: Iterable[Item], take: Callable[[Item], None]) -> None:
        """Have `take` called on the loop for each item."""
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
