"""Endpoints: the steps from an HTTP request to its answer, which all protocols share.

A protocol adds its bodies, how their fields are read, which model a body means, and the answers.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from serving.access.account import current_account
from serving.api.http.authentication import Gate
from serving.api.http.bodies import (
    AnyBody,
    Body,
    FieldReader,
    limited,
    parse,
)
from serving.api.http.openapi import OF_A_BODY, described_body
from serving.api.http.protocol import Protocol, current_request
from serving.api.http.services import Services
from serving.metrics import Tracked
from serving.pipelines import catalog

Model = TypeVar("Model", bound=catalog.Translator | catalog.Generator | catalog.Model)


@dataclass(frozen=True)
class Call(Generic[Body, Model]):
    """What an answer is made from.

    body: as the client sent it, without the model's defaults.
    job: the work to do, with these defaults.
    tracked: counts the request in the metrics, by its outcome.
    resources: closed when the handler ends; a streamed answer takes them over.
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
    answer_type: type of a whole answer's JSON.
    example: a body that `/docs` offers to try.
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

    async def serve(self, request: Request, services: Services, gate: Gate) -> Response:
        async with AsyncExitStack() as resources:
            tracked = resources.enter_context(services.metrics.track(self.protocol.name))
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
    """An endpoint whose answer a model makes.

    find_model: raises RequestError where the body names none. id_prefix: begins the ids of jobs.
    """

    find_model: Callable[[Services, Body], Awaitable[Model]]
    answer: Callable[[Call[Body, Model]], Awaitable[Response]]
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
        async with services.quota.held(current_account().key, body.num_characters):
            return await self.answer(Call(body, model, job, self.protocol, tracked, resources))


@dataclass(frozen=True, kw_only=True)
class SimpleEndpoint(BodyEndpoint[AnyBody]):
    """An endpoint that needs no job of a model. answer: returns what is written as JSON."""

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
    """Adds routes that need a key in the headers or the query, described for OpenAPI."""

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
        """Add a route.

        answer: type of its JSON; None if it is none. statuses: of its errors.
        content: describes an answer that is no JSON. extra: further fields of the operation, as
        its body and its parameters. options: of FastAPI's `add_api_route`.
        """
        described = self._protocol.responses(answer, statuses)
        success = dict(content) if content else described[200]
        del described[200]
        gate = Gate(self._keys)
        self.router.add_api_route(
            path,
            handle,
            methods=[method],
            status_code=status,
            responses={status: success, **described},
            dependencies=[Depends(gate.dependency(self._protocol))] if needs_key else None,
            openapi_extra=dict(extra) if extra else None,
            route_class_override=self._protocol.route_class,
            **options,
        )


def query_parameters(*names: str) -> dict[str, Any]:
    """Describe required parameters of the query, for OpenAPI."""
    schema = {"in": "query", "required": True, "schema": {"type": "string"}}
    return {"parameters": [{"name": name, **schema} for name in names]}


def _accounted(job: Any) -> Any:
    """Add the API key to a job, as keys get equal shares, and the trace of its request."""
    account = current_account()
    if not (account.key or account.traceparent):
        return job
    decoding = replace(job.decoding, share=account.key, traceparent=account.traceparent)
    return replace(job, decoding=decoding)


def job_id() -> str:
    """Return a new id that begins with the request's id.

    Several requests may have the same id, because clients may choose it.
    """
    request = current_request.get(None)
    return f"{request.request_id}-{secrets.token_hex(4)}" if request else secrets.token_hex(16)
