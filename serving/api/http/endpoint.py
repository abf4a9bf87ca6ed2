"""Endpoints: the steps from an HTTP request to its answer, which all protocols share.

A protocol adds the bodies of its requests, how their fields are read, how a body finds its model,
and the answers.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response

from serving.api.http.authentication import KeyCheck
from serving.api.http.bodies import AnyBody, Body, FieldReader, Fields, limit_body, parse
from serving.api.http.openapi import BODY_STATUSES, DescribedBody
from serving.api.http.protocol import Protocol, current_request
from serving.api.http.routing import Routes
from serving.api.http.services import Services
from serving.errors import Overloaded
from serving.observability.metrics import Tracked
from serving.observability.request_stats import current_request_stats
from serving.pipelines import catalog

# When HAProxy passed a request on: milliseconds since 1970.
ARRIVED_MS = "attendant-arrived-ms"
_MAX_DIGITS = 15  # of a time until the year 33658; `int` refuses texts of thousands of digits

AnyModel = TypeVar("AnyModel", bound=catalog.Translator | catalog.Generator | catalog.Model)


@dataclass(frozen=True)
class Call(Generic[Body, AnyModel]):
    """A request whose model is found.

    body: as the client sent it, without the model's defaults.
    job: the work to do, with these defaults.
    tracked: counts the request in the metrics, by its outcome.
    resources: closed when the handler ends, or by the answer if it is a stream.
    """

    body: Body
    model: AnyModel
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
    statuses: Sequence[int] = BODY_STATUSES

    def add_to(
        self, routes: Routes, services: Services, method: str = "POST", is_listed: bool = True
    ) -> None:
        """Register the endpoint, once for each of its methods.

        method: of a GET request the fields are in the query, for clients that send no body.
        is_listed: whether OpenAPI lists it.
        """

        async def respond(request: Request) -> Response:
            return await self.serve(request, services)

        routes.add(
            *(method, self.path, respond, self.answer_type, self.statuses),
            protocol=self.protocol,
            other_answers=self.other_answers,
            body=DescribedBody(self.body, self.reader.media_types, self.example),
            key_check=KeyCheck.IN_HANDLER,
            name=self.name,
            description=self.description,
            include_in_schema=is_listed,
        )

    async def serve(self, request: Request, services: Services) -> Response:
        """Read, check and answer a request."""
        async with AsyncExitStack() as resources:
            tracked = resources.enter_context(services.metrics.track(self.protocol.name))
            if services.max_wait_seconds is not None and ARRIVED_MS in request.headers:
                _check_waiting(request, services, services.max_wait_seconds)
            authenticator = services.authenticator
            if authenticator:
                authenticator.check_headers(self.protocol, request.headers)
            fields = await self._read_fields(request, services, resources)
            if authenticator:
                admit = authenticator.admit(self.protocol, request.headers, fields)
                await resources.enter_async_context(admit)
            return await self.answer_fields(fields, services, tracked, resources)

    async def _read_fields(
        self, request: Request, services: Services, resources: AsyncExitStack
    ) -> Fields:
        """Read the body. resources: close what it holds, with the answer."""
        return await self.reader.read(limit_body(request, services.max_body_bytes))

    @abstractmethod
    async def answer_fields(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        """Return the answer to the fields of an authenticated request."""


@dataclass(frozen=True, kw_only=True)
class Endpoint(BodyEndpoint[Body], Generic[Body, AnyModel]):
    """An endpoint that runs a job of a model.

    find_model: raises RequestError if the body names no model. id_prefix: of the ids of jobs.
    billed: returns how many characters count against the quota; None counts all of the body's.
    """

    find_model: Callable[[Services, Body], Awaitable[AnyModel]]
    answer: Callable[[Call[Body, AnyModel]], Awaitable[Response]]
    billed: Callable[[Body, AnyModel], int] | None = None
    id_prefix: str = ""

    async def answer_fields(
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
        body = await self._load(body, services, model)
        job = body.with_defaults(model.card.generation).job(self.id_prefix + job_id())
        stats = current_request_stats()
        if stats.key or stats.traceparent:  # keys get equal shares of the engine
            shared = replace(job.decoding, share=stats.key, traceparent=stats.traceparent)
            job = replace(job, decoding=shared)
        call = Call(body, model, job, self.protocol, tracked, resources)
        if not stats.key:
            return await self.answer(call)
        billed = self.billed(body, model) if self.billed else body.num_characters
        async with services.quota.reserve(stats.key, billed):
            return await self.answer(call)

    async def _load(self, body: Body, services: Services, model: AnyModel) -> Body:
        """Return the body with what is read for the model that answers it. Raises RequestError."""
        return body


@dataclass(frozen=True, kw_only=True)
class SimpleEndpoint(BodyEndpoint[AnyBody]):
    """An endpoint without a job. answer: returns a value that is written as JSON."""

    answer: Callable[[Services, AnyBody], Awaitable[Any]]

    async def answer_fields(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        return JSONResponse(await self.answer(services, parse(self.body, fields)))


def _check_waiting(request: Request, services: Services, max_seconds: float) -> None:
    """Raise Overloaded if a request has waited too long for this process to read it: all after it
    have, too, and the engine may be idle meanwhile.
    """
    arrived = request.headers[ARRIVED_MS]
    if not (arrived.isascii() and arrived.isdigit()):
        return
    seconds = time.time() - int(arrived[:_MAX_DIGITS]) / 1000
    if seconds > max_seconds:
        raise Overloaded(services.metrics.num_open, seconds, is_for_all=True)


def job_id() -> str:
    """Return a new id that begins with the request's id.

    Several requests may have the same id, because clients may choose it.
    """
    request = current_request.get(None)
    return f"{request.request_id}-{secrets.token_hex(4)}" if request else secrets.token_hex(16)
