"""What still waits when the server ends is answered; an answer that has begun is left alone."""

import asyncio
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from serving.api.http.middleware import ErrorMiddleware, RequestsInProgress
from serving.errors import EngineStopped

BEGIN = {"type": "http.response.start", "status": 200, "headers": []}


async def waits(scope: Scope, receive: Receive, send: Send) -> None:
    await asyncio.Event().wait()


async def reads(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()


async def has_begun(scope: Scope, receive: Receive, send: Send) -> None:
    await send(BEGIN)
    await asyncio.sleep(0.2)
    await send({"type": "http.response.body", "body": b"whole"})


def report(scope: Scope, error: BaseException) -> tuple[int, dict[str, Any]]:
    assert isinstance(error, EngineStopped)
    return 503, {"error": str(error)}


async def endless() -> Any:
    await asyncio.Event().wait()
    yield b""


async def ask_until_the_end(app: Any, **options: Any) -> httpx.Response:
    """Return the answer to a request that is in progress when the server ends."""
    in_progress = RequestsInProgress()
    transport = httpx.ASGITransport(ErrorMiddleware(app, report, in_progress))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        asking = asyncio.create_task(client.post("/x", **options))
        await asyncio.sleep(0.05)
        in_progress.end()
        return await asyncio.wait_for(asking, 10)


@pytest.mark.parametrize(("app", "options"), [(waits, {}), (reads, {"content": endless()})])
async def test_what_waits_is_told(app: Any, options: dict[str, Any]) -> None:
    answer = await ask_until_the_end(app, **options)
    assert answer.status_code == 503
    assert answer.json() == {"error": "the server is stopping; try again"}


async def test_an_answer_that_has_begun_is_left_alone() -> None:
    assert (await ask_until_the_end(has_begun)).text == "whole"


async def test_who_leaves_is_not_answered() -> None:
    middleware = ErrorMiddleware(waits, report, RequestsInProgress())
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    receive: Any = asyncio.Event().wait
    task = asyncio.create_task(middleware(scope, receive, send))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sent == []
