"""Answers completions and chats: as one JSON value, or as server-sent events."""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Any

from fastapi.responses import JSONResponse, Response

from serving.api.http.endpoint import Call
from serving.api.http.streams import EventStream, events_of, first_of
from serving.api.openai.completion_body import GenerationBody, StreamOptions
from serving.api.openai.shapes import Shape
from serving.metrics import Outcome
from serving.pipelines.catalog import Generator
from serving.pipelines.completion.deltas import Deltas, collect
from serving.pipelines.completion.job import CompletionDelta

_DONE = "data: [DONE]\n\n"


async def answer(shape_class: type[Shape], call: Call[GenerationBody, Generator]) -> Response:
    shape = shape_class(call.job, call.model.card)
    deltas = await call.resources.enter_async_context(aclosing(call.model.stream(call.job)))
    if not call.body.stream:
        num_choices = len(call.job.prompts) * call.job.num_choices
        return JSONResponse(shape.whole(await collect(deltas, num_choices)))
    first = await first_of(deltas, call.resources)
    call.tracked.outcome = Outcome.CANCELLED  # until its last event says otherwise
    chunks = _chunks(shape, first, deltas, call.body.stream_options)
    events = events_of(chunks, call.tracked, call.protocol, end=_DONE)
    return EventStream(events, call.resources.pop_all())


async def _chunks(
    shape: Shape, first: Awaitable[CompletionDelta], rest: Deltas, options: StreamOptions
) -> AsyncGenerator[dict[str, Any], None]:
    yield shape.chunk(await first, options)
    async for delta in rest:
        yield shape.chunk(delta, options)
    if options.include_usage:
        yield shape.usage_chunk()
