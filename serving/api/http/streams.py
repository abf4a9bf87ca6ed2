"""Server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from serving.api.http.openapi import EVENTS
from serving.api.http.protocol import ENDS, Protocol, log_failure
from serving.observability.metrics import Outcome, Tracked, outcome_of
from serving.pipelines.streams import in_batches

PING_SECONDS = 10.0  # many proxies close a connection that is silent for 30 to 60 seconds
_PING = b": ping\n\n"
Item = TypeVar("Item")


# `json.dumps` makes one at each call.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def sse(value: dict[str, Any]) -> str:
    """Return a value as an event; one with a `type` has an event of that name."""
    name = f"event: {value['type']}\n" if "type" in value else ""
    return f"{name}data: {_encode(value)}\n\n"


class EventStream(StreamingResponse):
    """Sends events, and closes `resources` at the end, also if the client disconnects.

    Events that are ready together are sent together. During long pauses it sends comments, so that
    proxies keep the connection open.
    """

    media_type = EVENTS

    def __init__(self, events: AsyncGenerator[str, None], resources: AsyncExitStack) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        self._events = _join_batches(events)
        super().__init__(self._events, headers=headers)
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources, aclosing(self._events), _sending_pings(send) as send_event:
            await super().__call__(scope, receive, send_event)


async def _join_batches(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield the events that have come since the last time as one text: writing to a connection
    costs as much as making an event.
    """
    async with aclosing(in_batches(events)) as batches:
        async for batch in batches:
            yield "".join(batch)


@asynccontextmanager
async def _sending_pings(send: Send) -> AsyncIterator[Send]:
    """Yield a function that sends the answer; comments are sent between its parts."""
    loop = asyncio.get_running_loop()
    has_begun = False
    sent_at = loop.time()

    async def send_event(message: Message) -> None:
        nonlocal has_begun, sent_at
        has_begun = message.get("more_body", True)
        sent_at = loop.time()
        await send(message)

    async def ping() -> None:
        while True:
            await asyncio.sleep(max(sent_at + PING_SECONDS - loop.time(), 0.001))
            if has_begun and loop.time() - sent_at >= PING_SECONDS:
                await send_event({"type": "http.response.body", "body": _PING, "more_body": True})

    pinger = asyncio.create_task(ping())
    try:
        yield send_event
    finally:
        pinger.cancel()
        await asyncio.gather(pinger, return_exceptions=True)


async def wait_for_first(
    items: AsyncGenerator[Item, None], stack: AsyncExitStack
) -> Awaitable[Item]:
    """Wait a short time for the first item of a stream; return an awaitable of the item.

    An error until then is raised here, so that the answer gets its status. stack: is closed before
    the stream.
    """
    first = asyncio.ensure_future(anext(items))
    stack.push_async_callback(_cancel_first, first)
    await asyncio.wait([first], timeout=PING_SECONDS)
    if first.done():
        first.result()
    return first


async def _cancel_first(first: "asyncio.Future[Any]") -> None:
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def encode_events(
    values: AsyncGenerator[dict[str, Any], None],
    tracked: Tracked,
    protocol: Protocol,
    end: str = "",
) -> AsyncGenerator[str, None]:
    """Yield values as events. A failure is the last event, in the form of the protocol.

    tracked: gets the outcome. end: is sent after the last value.
    """
    try:
        async with aclosing(values):
            async for value in values:
                yield sse(value)
    except ENDS:
        raise
    except BaseException as error:  # a panic of a library is not an Exception
        log_failure(error)
        tracked.outcome = outcome_of(error)
        yield sse(protocol.report(error)[1])
        return
    tracked.outcome = Outcome.SUCCESS
    if end:
        yield end
