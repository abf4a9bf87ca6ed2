"""OpenAI's completions: `POST /v1/completions`, `GET /v1/models`, errors as its clients expect."""

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from serving.api.bodies import limited, parse, parse_json
from serving.api.errors import log_failure, message_of, renamed, status_of
from serving.api.openai_bodies import (
    NAMES,
    CompletionBody,
    StreamOptions,
    without_fields_at_rest,
)
from serving.api.openai_shapes import CompletionShape
from serving.api.services import Services
from serving.api.streams import EventStream, sse
from serving.errors import ModelNotFound, RequestError
from serving.metrics import Outcome, Tracked, outcome_of
from serving.pipelines.generation import Deltas, collect
from serving.pipelines.jobs import CompletionDelta, ModelCard
from serving.text.checks import check_texts

PREFIX = "/v1"
_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable"}


def error_body(status: int, error: Exception) -> dict[str, Any]:
    error = renamed(error, NAMES)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "model_not_found" if isinstance(error, ModelNotFound) else _CODES.get(status)
    param = error.field if isinstance(error, RequestError) else None
    return {
        "error": {"message": message_of(error), "type": kind, "param": param, "code": code},
    }


def router(services: Services) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, tags=["OpenAI"])
    schema = {"content": {"application/json": {"schema": CompletionBody.model_json_schema()}}}
    started = int(time.time())

    @routes.post("/completions", openapi_extra={"requestBody": schema})
    async def completions(request: Request) -> Response:
        """Complete one prompt or several; with `stream`, as server-sent events."""
        async with AsyncExitStack() as stack:
            tracked = stack.enter_context(services.metrics.track("openai"))
            body = await _completion_body(request, services)
            generator = await services.catalog.generator(body.model)
            tracked.model = generator.card.name
            job = body.job(f"cmpl-{uuid.uuid4().hex}")
            shape = CompletionShape(job, generator.card.name)
            deltas = await stack.enter_async_context(aclosing(generator.stream(job)))
            if not body.stream:
                num_choices = len(job.prompts) * job.num_choices
                return JSONResponse(shape.whole(await collect(deltas, num_choices)))
            # The first delta is awaited here: what is refused before it has its own status.
            first = await anext(deltas)
            tracked.outcome = Outcome.CANCELLED  # until its last event says otherwise
            events = _events(first, deltas, shape, body.stream_options, tracked)
            return EventStream(events, stack.pop_all())

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        """The models that are served here."""
        found = [_model_body(model.card, started) for model in await services.catalog.models()]
        return {"object": "list", "data": found}

    @routes.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        """One model."""
        return _model_body((await services.catalog.named(name)).card, started)

    return routes


async def _completion_body(request: Request, services: Services) -> CompletionBody:
    fields = parse_json(await limited(request, services.limits).body())
    body = parse(CompletionBody, without_fields_at_rest(fields))
    max_characters = services.limits.max_characters
    prompts = [prompt for prompt in body.prompts if isinstance(prompt, str)]
    check_texts("prompt", prompts, max_characters)
    return body


async def _events(
    first: CompletionDelta,
    rest: Deltas,
    shape: CompletionShape,
    options: StreamOptions,
    tracked: Tracked,
) -> AsyncGenerator[str, None]:
    yield sse(shape.chunk(first, options))
    try:
        async for delta in rest:
            yield sse(shape.chunk(delta, options))
    except Exception as error:
        log_failure(error)
        tracked.outcome = outcome_of(error)
        yield sse(error_body(status_of(error), error))
        return
    if options.include_usage:
        yield sse(shape.usage_chunk())
    tracked.outcome = Outcome.SUCCESS
    yield "data: [DONE]\n\n"


def _model_body(card: ModelCard, created: int) -> dict[str, Any]:
    return {
        "id": card.name,
        "object": "model",
        "created": created,
        "owned_by": "attendant",
        "task": card.task,
        "source_languages": card.source_languages,
        "target_languages": card.target_languages,
        "max_model_len": card.max_target_tokens,
    }
