"""Gives the command line a model with an engine of its own: no server, the same results."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from serving.engine.config import EngineConfig
from serving.engine.planning.plan import Allowance
from serving.pipelines.catalog import Catalog
from serving.pipelines.loading import load_model

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
) -> AsyncIterator[Result]:
    """Work on many items at once and yield the results in the order of the items.

    Items are taken on another thread, as they may come from a pipe that is in no hurry; a result is
    given as soon as it is there and those before it were given.

    max_at_work: most items that wait for their results at once.
    """
    started: asyncio.Queue[asyncio.Task[Result] | None] = asyncio.Queue(max_at_work)
    feeding = asyncio.create_task(_feed(work, items, started))
    try:
        while (task := await started.get()) is not None:
            yield await task
        await feeding
    finally:
        feeding.cancel()
        while not started.empty():
            if (task := started.get_nowait()) is not None:
                task.cancel()


async def _feed(
    work: Callable[[Item], Coroutine[Any, Any, Result]],
    items: Iterable[Item],
    started: "asyncio.Queue[asyncio.Task[Result] | None]",
) -> None:
    iterator = iter(items)
    end = object()
    try:
        while (item := await asyncio.to_thread(next, iterator, end)) is not end:
            await started.put(asyncio.create_task(work(item)))  # type: ignore[arg-type]
    finally:
        await started.put(None)
