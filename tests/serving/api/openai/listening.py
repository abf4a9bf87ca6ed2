"""Lets an application listen at a real socket, on a thread and a loop of its own."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

Made = Callable[[], AbstractAsyncContextManager[FastAPI]]


@contextmanager
def listening(make_app: Made) -> Iterator[str]:
    """The URL of an application that is made, served and ended on its thread."""
    started: Future[uvicorn.Server] = Future()
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        run = pool.submit(asyncio.run, _serve(make_app, listener, started))
        either: list[Future[Any]] = [started, run]
        wait(either, return_when=FIRST_COMPLETED)
        if run.done():
            run.result()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            started.result().should_exit = True
            run.result(timeout=30)


async def _serve(
    make_app: Made, listener: socket.socket, started: "Future[uvicorn.Server]"
) -> None:
    async with make_app() as app:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
        started.set_result(server)
        await server.serve([listener])
