"""Sends server-sent events."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from serving.api.http.error_responses import ENDS, log_failure
from serving.api.http.protocol import Protocol
from serving.metrics import Outcome, Tracked, outcome_of


def sse(value: Any) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


class EventStream(StreamingResponse):
    """Sends events, and closes `resources` as it ends, also if the client goes away before."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None], resources: AsyncExitStack) -> None:
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers)
        self._events = events
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources, aclosing(self._events):
            await super().__call__(scope, receive, send)


async def events_of(
    values: AsyncGenerator[dict[str, Any], None],
    tracked: Tracked,
    protocol: Protocol,
    end: str = "",
) -> AsyncGenerator[str, None]:
    """Write values as events; a failure is one too, the last, in the protocol's shape.

    tracked: gets its outcome here. end: follows the last value.
    """
    try:
        async with aclosing(values):
            async for value in values:
                yield sse(value)
    except ENDS:
        raise
    except BaseException as error:  # a library's panic is no Exception
        log_failure(error)
        tracked.outcome = outcome_of(error)
        yield sse(protocol.report(error)[1])
        return
    tracked.outcome = Outcome.SUCCESS
    if end:
        yield end
