"""Runs a pipeline with an engine of its own, for the command line: no server, the same results."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from serving.bundle.opening import open_bundle
from serving.config import TextLimits
from serving.engine.bridge import AsyncEngine
from serving.engine.config import EngineConfig
from serving.engine.engine import Engine
from serving.pipelines.catalog import Catalog, build_pipeline
from serving.pipelines.translation.tokenizer_pair import TokenizerPair

Item = TypeVar("Item")
Result = TypeVar("Result")
_UNLIMITED = 2**40


@asynccontextmanager
async def opened(path: Path, config: EngineConfig) -> AsyncIterator[Catalog]:
    """Open a catalog of one bundle. Raises BundleError or DeviceError."""
    bundle = open_bundle(path)
    tokenizers = TokenizerPair.load(bundle)
    engine = AsyncEngine(Engine(bundle, config, excluded_ids=tokenizers.target.textless_ids))
    engine.start()
    try:
        limits = TextLimits(max_characters=_UNLIMITED, max_segments=_UNLIMITED)
        yield Catalog([build_pipeline(bundle, tokenizers, engine, limits)])
    finally:
        await engine.shutdown()


async def in_order(
    work: Callable[[Item], Coroutine[Any, Any, Result]], items: Iterable[Item], max_at_work: int
) -> AsyncIterator[Result]:
    """Yield the results of many items at work at once, in the order of the items.

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
