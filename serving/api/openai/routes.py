"""OpenAI's completions and chats, its list of models, and errors as its clients expect them."""

import time
import uuid
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from serving.api.http.answers import (
    ChatCompletion,
    Completion,
    ModelBody,
    ModelList,
    OpenAIError,
)
from serving.api.http.bodies import limited, parse, parse_json
from serving.api.http.errors import ENDS, ErrorBody, log_failure, message_of, renamed, status_of
from serving.api.http.openapi import (
    JSON,
    OF_A_BODY,
    OF_A_MODEL,
    OF_ANY_ROUTE,
    body,
    responses,
    text,
)
from serving.api.http.services import Services
from serving.api.http.streams import EventStream, sse
from serving.api.openai.chat_body import AT_REST as CHAT_AT_REST
from serving.api.openai.chat_body import NAMES as CHAT_NAMES
from serving.api.openai.chat_body import ChatBody
from serving.api.openai.completion_body import (
    AT_REST,
    NAMES,
    CompletionBody,
    StreamOptions,
    without_fields_at_rest,
)
from serving.api.openai.shapes import ChatShape, CompletionShape, Shape
from serving.errors import ModelNotFound, RequestError
from serving.metrics import Outcome, Tracked, outcome_of
from serving.pipelines.cards import ModelCard
from serving.pipelines.completion.deltas import Deltas, collect
from serving.pipelines.completion.job import CompletionDelta

PREFIX = "/v1"
BODIES = (CompletionBody, ChatBody)
_TYPES = {
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}
_CODES = {429: "rate_limit_exceeded", 503: "service_unavailable"}


@dataclass(frozen=True)
class _Endpoint:
    """names: what the engine and the pipelines call fields, and what its clients do."""

    path: str
    body: type[CompletionBody] | type[ChatBody]
    answer: Any
    shape: type[Shape]
    at_rest: Mapping[str, tuple[Any, ...]]
    names: Mapping[str, str]
    id_prefix: str
    example: dict[str, Any]

    @property
    def documentation(self) -> dict[str, Any]:
        answers = responses(self.answer, OpenAIError, OF_A_BODY)
        answers[200] |= text(EventStream.media_type, "With `stream`: chunks, then [DONE].")
        return {"responses": answers, "openapi_extra": body(self.body, JSON, example=self.example)}


_COMPLETIONS = _Endpoint(
    "/completions",
    CompletionBody,
    Completion,
    CompletionShape,
    AT_REST,
    NAMES,
    "cmpl",
    {"model": "llama-en", "prompt": "It was"},
)
_CHATS = _Endpoint(
    "/chat/completions",
    ChatBody,
    ChatCompletion,
    ChatShape,
    CHAT_AT_REST,
    CHAT_NAMES,
    "chatcmpl",
    {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": "Hello!"}]},
)


def error_body_at(path: str) -> ErrorBody:
    names = CHAT_NAMES if path == PREFIX + _CHATS.path else NAMES
    return partial(_error_body, names)


def _error_body(names: Mapping[str, str], status: int, error: BaseException) -> dict[str, Any]:
    error = renamed(error, names)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    code = "model_not_found" if isinstance(error, ModelNotFound) else _CODES.get(status)
    param = error.field if isinstance(error, RequestError) else None
    return {
        "error": {"message": message_of(error), "type": kind, "param": param, "code": code},
    }


def router(services: Services) -> APIRouter:
    routes = APIRouter(prefix=PREFIX, tags=["OpenAI"])
    started = int(time.time())

    @routes.post(_COMPLETIONS.path, **_COMPLETIONS.documentation)
    async def completions(request: Request) -> Response:
        """Complete one prompt or several; with `stream`, as server-sent events."""
        return await _answer(request, services, _COMPLETIONS)

    @routes.post(_CHATS.path, **_CHATS.documentation)
    async def chat_completions(request: Request) -> Response:
        """Answer the last of some messages; with `stream`, as server-sent events."""
        return await _answer(request, services, _CHATS)

    @routes.get("/models", responses=responses(ModelList, OpenAIError, OF_ANY_ROUTE))
    async def models() -> JSONResponse:
        """The models that are served here."""
        found = [_model_body(model.card, started) for model in await services.catalog.models()]
        return JSONResponse({"object": "list", "data": found})

    @routes.get("/models/{name:path}", responses=responses(ModelBody, OpenAIError, OF_A_MODEL))
    async def model(name: str) -> JSONResponse:
        """One model."""
        return JSONResponse(_model_body((await services.catalog.named(name)).card, started))

    return routes


async def _answer(request: Request, services: Services, endpoint: _Endpoint) -> Response:
    async with AsyncExitStack() as stack:
        tracked = stack.enter_context(services.metrics.track("openai"))
        body = await _body(request, services, endpoint)
        generator = await services.catalog.generator(body.model)
        card = generator.card
        tracked.model = card.name
        request_id = f"{endpoint.id_prefix}-{uuid.uuid4().hex}"
        job = body.with_defaults(card.generation).job(request_id)
        shape = endpoint.shape(job, card.name)
        deltas = await stack.enter_async_context(aclosing(generator.stream(job)))
        if not body.stream:
            num_choices = len(job.prompts) * job.num_choices
            return JSONResponse(shape.whole(await collect(deltas, num_choices)))
        # The first delta is awaited here: what is refused before it has its own status.
        first = await anext(deltas)
        tracked.outcome = Outcome.CANCELLED  # until its last event says otherwise
        told = _told(shape, first, deltas, body.stream_options)
        return EventStream(_events(told, tracked, endpoint.names), stack.pop_all())


async def _body(
    request: Request, services: Services, endpoint: _Endpoint
) -> CompletionBody | ChatBody:
    fields = parse_json(await limited(request, services.limits).body())
    body = parse(endpoint.body, without_fields_at_rest(fields, endpoint.at_rest))
    body.check_texts(services.limits.max_characters)
    return body


async def _told(
    shape: Shape, first: CompletionDelta, rest: Deltas, options: StreamOptions
) -> AsyncGenerator[dict[str, Any], None]:
    yield shape.chunk(first, options)
    async for delta in rest:
        yield shape.chunk(delta, options)
    if options.include_usage:
        yield shape.usage_chunk()


async def _events(
    chunks: AsyncGenerator[dict[str, Any], None], tracked: Tracked, names: Mapping[str, str]
) -> AsyncGenerator[str, None]:
    try:
        async with aclosing(chunks):
            async for chunk in chunks:
                yield sse(chunk)
    except ENDS:
        raise
    except BaseException as error:  # a library's panic is no Exception
        log_failure(error)
        tracked.outcome = outcome_of(error)
        yield sse(_error_body(names, status_of(error), error))
        return
    tracked.outcome = Outcome.SUCCESS
    yield "data: [DONE]\n\n"


def _model_body(card: ModelCard, created: int) -> dict[str, Any]:
    """generation: what holds where a request says nothing."""
    return {
        "id": card.name,
        "object": "model",
        "created": created,
        "owned_by": "attendant",
        "task": card.task,
        "source_languages": card.source_languages,
        "target_languages": card.target_languages,
        "max_model_len": card.max_target_tokens,
        "has_chat_template": card.has_chat_template,
        "generation": card.generation,
    }
