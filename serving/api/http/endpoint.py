"""Endpoints: the steps from an HTTP request to its answer, which all protocols share.

A protocol adds the bodies of its requests, how their fields are read, how a body finds its model,
and the answers. A key is read from the header or the field that the protocol names.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.access.key_ring import Key, KeyRing
from serving.access.quota import Usage
from serving.api.http.bodies import AnyBody, Body, FieldReader, limited, parse
from serving.api.http.openapi import OF_A_BODY, OF_A_LIST, described_body
from serving.api.http.protocol import ENDS, Protocol, current_request, error_response
from serving.api.http.services import Services
from serving.errors import KeyRefused, Overloaded
from serving.observability.metrics import Tracked
from serving.observability.request_stats import current_key, current_request_stats
from serving.pipelines import catalog

# When HAProxy passed a request on: milliseconds since 1970.
ARRIVED_MS = "attendant-arrived-ms"
_MOST_DIGITS = 15

Model = TypeVar("Model", bound=catalog.Translator | catalog.Generator | catalog.Model)


class Gate:
    """Checks the API keys of requests. Without a key ring every request is admitted."""

    def __init__(self, ring: KeyRing | None) -> None:
        self._ring = ring

    def check_headers(self, protocol: Protocol, headers: Headers) -> None:
        """Raise KeyRefused if the headers have no valid key, and the body has no field for one."""
        if self._ring and protocol.key_field is None:
            self._key_in(protocol, headers, {})

    @contextmanager
    def admitted(
        self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]
    ) -> Iterator[None]:
        """Admit a request, and count its tokens at the end. Raises KeyRefused and RateExceeded."""
        if self._ring is None:
            yield
            return
        stats = current_request_stats()
        key = self._key_in(protocol, headers, fields)
        stats.key = key.name
        key.admit()
        try:
            yield
        finally:
            key.charge(stats.num_tokens)

    def dependency(self, protocol: Protocol) -> Callable[[Request], Awaitable[None]]:
        """Return a FastAPI dependency that checks the key of a route without a body."""

        async def check_key(request: Request) -> None:
            if self._ring:
                key = self._key_in(protocol, request.headers, request.query_params)
                current_request_stats().key = key.name

        return check_key

    def _key_in(self, protocol: Protocol, headers: Headers, fields: Mapping[str, Any]) -> Key:
        assert self._ring is not None
        given: Any
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != protocol.key_scheme.lower() or not given.strip():
            given = fields.get(protocol.key_field) if protocol.key_field else None
        key = self._ring.find(given.strip()) if isinstance(given, str) and given else None
        if key is None:
            raise KeyRefused(protocol.key_place)
        return key


@dataclass(frozen=True)
class Call(Generic[Body, Model]):
    """A request whose model is found.

    body: as the client sent it, without the model's defaults.
    job: the work to do, with these defaults.
    tracked: counts the request in the metrics, by its outcome.
    resources: closed when the handler ends, or by the answer if it is a stream.
    """

    body: Body
    model: Model
    job: Any
    protocol: Protocol
    tracked: Tracked
    resources: AsyncExitStack


@dataclass(frozen=True, kw_only=True)
class BodyEndpoint(ABC, Generic[AnyBody]):
    """An endpoint that answers POST requests at one path.

    path: without the protocol's prefix.
    name, description: of the operation in the OpenAPI document.
    answer_type: type of the JSON of an answer.
    example: a body to try in `/docs`.
    other_answers: further forms of an answer, for OpenAPI. statuses: of errors, for OpenAPI.
    """

    protocol: Protocol
    path: str
    name: str
    description: str
    body: type[AnyBody]
    reader: FieldReader
    answer_type: Any
    example: Mapping[str, Any]
    other_answers: Mapping[str, Any] | None = None
    statuses: Sequence[int] = OF_A_BODY

    def add_to(self, routes: APIRouter, services: Services) -> None:
        gate = Gate(services.keys)

        async def handle(request: Request) -> Response:
            return await self.serve(request, services, gate)

        responses = self.protocol.responses(self.answer_type, self.statuses)
        responses[200] |= self.other_answers or {}
        routes.add_api_route(
            self.path,
            handle,
            methods=["POST"],
            name=self.name,
            description=self.description,
            responses=responses,
            openapi_extra=described_body(self.body, *self.reader.media_types, example=self.example),
            route_class_override=self.protocol.route_class,
        )

    def add_get_to(self, routes: APIRouter, services: Services) -> None:
        """Answer GET requests, with the fields in the query, for clients that know no better."""
        gate = Gate(services.keys)

        async def handle(request: Request) -> Response:
            return await self.serve(request, services, gate)

        route_class = self.protocol.route_class
        options: dict[str, Any] = {"include_in_schema": False, "route_class_override": route_class}
        routes.add_api_route(self.path, handle, methods=["GET"], **options)

    def asgi_app(self, services: Services) -> ASGIApp:
        """Return an application that answers the endpoint's requests as its route does, but looks
        for no route and solves no dependencies, which takes as long as all of our own code.
        """
        gate = Gate(services.keys)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            response: Response
            try:
                response = await self.serve(Request(scope, receive), services, gate)
            except ENDS:
                raise
            except BaseException as error:
                response = error_response(error, *self.protocol.report(error))
            await response(scope, receive, send)

        return answer

    async def serve(self, request: Request, services: Services, gate: Gate) -> Response:
        async with AsyncExitStack() as resources:
            tracked = resources.enter_context(services.metrics.track(self.protocol.name))
            _check_waiting(request.headers, services)
            gate.check_headers(self.protocol, request.headers)
            fields = await self.reader.read(limited(request, services.limits))
            resources.enter_context(gate.admitted(self.protocol, request.headers, fields))
            return await self.answered(fields, services, tracked, resources)

    @abstractmethod
    async def answered(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        """Return the answer to the fields of an authenticated request."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(BodyEndpoint[Body], Generic[Body, Model]):
    """An endpoint that runs a job of a model.

    find_model: raises RequestError if the body names no model. id_prefix: of the ids of jobs.
    billed: returns how many characters count against the quota, by default all of the body's.
    """

    find_model: Callable[[Services, Body], Awaitable[Model]]
    answer: Callable[[Call[Body, Model]], Awaitable[Response]]
    billed: Callable[[Body, Model], int] = lambda body, model: body.num_characters
    id_prefix: str = ""

    async def answered(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        body = parse(self.body, fields)
        body.check(services.limits.max_characters)
        model = await self.find_model(services, body)
        tracked.started(model.card.name)
        job = _accounted(body.with_defaults(model.card.generation).job(self.id_prefix + job_id()))
        async with services.quota.reserve(current_request_stats().key, self.billed(body, model)):
            return await self.answer(Call(body, model, job, self.protocol, tracked, resources))


@dataclass(frozen=True, kw_only=True)
class SimpleEndpoint(BodyEndpoint[AnyBody]):
    """An endpoint without a job. answer: returns a value that is written as JSON."""

    answer: Callable[[Services, AnyBody], Awaitable[Any]]

    async def answered(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        return JSONResponse(await self.answer(services, parse(self.body, fields)))


class Routes:
    """Adds the routes of a protocol, with their description for OpenAPI."""

    def __init__(self, protocol: Protocol, services: Services, tag: str) -> None:
        self.router: APIRouter = protocol.router(tag)
        self._protocol, self._keys = protocol, services.keys

    def add(
        self,
        method: str,
        path: str,
        handle: Callable[..., Any],
        answer: Any,
        statuses: Sequence[int],
        *,
        status: int = 200,
        content: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        needs_key: bool = True,
        **options: Any,
    ) -> None:
        """Add a route; its key is in the headers or the query.

        answer: type of its JSON; None if it has none. statuses: of its errors.
        content: describes an answer that is not JSON. extra: further fields of the operation, such
        as its body and its parameters. options: of FastAPI's `add_api_route`.
        """
        described = self._protocol.responses(answer, statuses)
        success = described.pop(200)
        gate = Gate(self._keys)
        self.router.add_api_route(
            path,
            handle,
            methods=[method],
            status_code=status,
            responses={status: dict(content or success), **described},
            dependencies=[Depends(gate.dependency(self._protocol))] if needs_key else None,
            openapi_extra=dict(extra or {}),
            route_class_override=self._protocol.route_class,
            **options,
        )


class UsageBody(TypedDict):
    """The answer. character_limit: null without a limit.

    start_time, end_time: of the month that is counted.
    """

    character_count: int
    character_limit: int | None
    start_time: str
    end_time: str


def add_usage(routes: Routes, services: Services, name: str) -> None:
    """Add `GET /usage`. name: of the operation."""

    async def usage() -> JSONResponse:
        """Return how many characters the key has used this month."""
        return JSONResponse(usage_body(await services.quota.usage(current_key())))

    routes.add("GET", "/usage", usage, UsageBody, OF_A_LIST, name=name)


def usage_body(usage: Usage) -> UsageBody:
    return {
        "character_count": usage.characters,
        "character_limit": usage.limit,
        "start_time": _as_text(usage.start),
        "end_time": _as_text(usage.end),
    }


def _as_text(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")


def query_parameters(*names: str) -> dict[str, Any]:
    """Describe required parameters of the query, for OpenAPI."""
    schema = {"in": "query", "required": True, "schema": {"type": "string"}}
    return {"parameters": [{"name": name, **schema} for name in names]}


def _check_waiting(headers: Headers, services: Services) -> None:
    """Raise Overloaded if a request has waited too long for this process to read it: all after it
    have, too, and the engine may be idle meanwhile.
    """
    arrived, most = headers.get(ARRIVED_MS, ""), services.max_wait_seconds
    if most is None or not (arrived.isascii() and arrived.isdigit()):
        return
    seconds = time.time() - int(arrived[:_MOST_DIGITS]) / 1000
    if seconds > most:
        raise Overloaded(services.metrics.num_open, seconds, is_for_all=True)


def _accounted(job: Any) -> Any:
    """Add the API key to a job, because keys get equal shares, and the trace of its request."""
    stats = current_request_stats()
    if not (stats.key or stats.traceparent):
        return job
    decoding = replace(job.decoding, share=stats.key, traceparent=stats.traceparent)
    return replace(job, decoding=decoding)


def job_id() -> str:
    """Return a new id that begins with the request's id.

    Several requests may have the same id, because clients may choose it.
    """
    request = current_request.get(None)
    return f"{request.request_id}-{secrets.token_hex(4)}" if request else secrets.token_hex(16)
