"""Lets an application listen at a real socket, on a thread and a loop of its own."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from serving.api.application import create_app
from serving.api.http.services import Services
from serving.engine.config import EngineConfig
from serving.metrics import Metrics
from serving.pipelines.loading import opened
from serving.server_config import TextLimits

Made = Callable[[], AbstractAsyncContextManager[FastAPI]]


@asynccontextmanager
async def app_over(bundle: Path) -> AsyncIterator[FastAPI]:
    """The application over a bundle and its real engine."""
    async with opened(bundle, EngineConfig(slots=16, threads=1)) as catalog:
        metrics = Metrics("r1")

        async def exposition() -> bytes:
            return metrics.exposition()

        limits = TextLimits(max_characters=10_000, max_segments=20)
        yield create_app(Services(catalog, limits, metrics, exposition, lambda: True))


@contextmanager
def listening(made: Made) -> Iterator[str]:
    """The URL of an application that is made, served and ended on its thread."""
    started: Future[uvicorn.Server] = Future()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        run = pool.submit(asyncio.run, _serve(made, listener, started))
        either: list[Future[Any]] = [started, run]
        wait(either, return_when=FIRST_COMPLETED)
        if run.done():
            run.result()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            started.result().should_exit = True
            run.result(timeout=30)


async def _serve(made: Made, listener: socket.socket, started: "Future[uvicorn.Server]") -> None:
    async with made() as app:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
        started.set_result(server)
        await server.serve([listener])
