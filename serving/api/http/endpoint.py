"""Endpoints: the steps from an HTTP request to its answer, which all protocols share.

A protocol adds its body, how the fields are read, which model a body means, and the answer.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from serving.access.account import current_account
from serving.api.http.authentication import Gate
from serving.api.http.bodies import AnyBody, Body, parse
from serving.api.http.error_responses import asked
from serving.api.http.fields import FieldReader, limited
from serving.api.http.openapi import OF_A_BODY, described_body
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services
from serving.metrics import Tracked
from serving.pipelines import catalog

Model = TypeVar("Model", bound=catalog.Translator | catalog.Generator | catalog.Model)


@dataclass(frozen=True)
class Call(Generic[Body, Model]):
    """What an answer is made from.

    body: what the client said, without the model's defaults.
    job: the work to do, with them.
    protocol: the one that was spoken.
    tracked: counts the request, as how it ends says.
    resources: closed once the handler is done; an answer that goes on after that takes them along.
    """

    body: Body
    model: Model
    job: Any
    protocol: Protocol
    tracked: Tracked
    resources: AsyncExitStack


@dataclass(frozen=True)
class Endpoint(Generic[Body, Model]):
    """Serves POST requests to one path.

    path: what follows the protocol's prefix.
    name: of the operation, with a line that describes it, in the OpenAPI document.
    find_model: raises RequestError where no model is meant.
    answer_type: the type of a whole answer's JSON.
    example: a body that `/docs` offers to try out.
    id_prefix: the beginning of the ids of its jobs.
    other_answers: what an answer may be instead, as OpenAPI describes it.
    statuses: of its errors, for OpenAPI.
    """

    protocol: Protocol
    path: str
    name: str
    description: str
    body: type[Body]
    reader: FieldReader
    find_model: Callable[[Services, Body], Awaitable[Model]]
    answer: Callable[[Call[Body, Model]], Awaitable[Response]]
    answer_type: Any
    example: Mapping[str, Any]
    id_prefix: str = ""
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
            gate.needs_no_body(self.protocol, request.headers)
            fields = await self.reader.read(limited(request, services.limits))
            resources.enter_context(gate.admitted(self.protocol, request.headers, fields))
            return await self.answered(fields, services, tracked, resources)

    async def answered(
        self,
        fields: Mapping[str, Any],
        services: Services,
        tracked: Tracked,
        resources: AsyncExitStack,
    ) -> Response:
        """Answer the fields of whoever was let in."""
        body = parse(self.body, fields)
        body.check(services.limits.max_characters)
        model = await self.find_model(services, body)
        tracked.started(model.card.name)
        job = _shared(body.with_defaults(model.card.generation).job(self.id_prefix + job_id()))
        async with services.quota.held(current_account().key, body.num_characters):
            return await self.answer(Call(body, model, job, self.protocol, tracked, resources))


def _shared(job: Any) -> Any:
    """Put a job on the account of the key that was shown, as keys get equal shares, and into the
    trace of its request.
    """
    account = current_account()
    if not (account.key or account.traceparent):
        return job
    decoding = replace(job.decoding, share=account.key, traceparent=account.traceparent)
    return replace(job, decoding=decoding)


def job_id() -> str:
    """Make the id of a job: that of its request, by which logs name both, and what tells it from
    others to whose requests a client gave the same id.
    """
    it = asked.get(None)
    return f"{it.request_id}-{secrets.token_hex(4)}" if it else secrets.token_hex(16)


@dataclass(frozen=True)
class Question(Generic[AnyBody]):
    """Serves POST requests to one path; its fields are those of an `Endpoint`.

    answer: returns what is written as JSON.
    """

    protocol: Protocol
    path: str
    name: str
    description: str
    body: type[AnyBody]
    reader: FieldReader
    answer: Callable[[Services, AnyBody], Awaitable[Any]]
    answer_type: Any
    example: Mapping[str, Any]

    def add_to(self, routes: APIRouter, services: Services) -> None:
        gate = Gate(services.keys)

        async def handle(request: Request) -> JSONResponse:
            return await self.serve(request, services, gate)

        routes.add_api_route(
            self.path,
            handle,
            methods=["POST"],
            name=self.name,
            description=self.description,
            responses=self.protocol.responses(self.answer_type, OF_A_BODY),
            openapi_extra=described_body(self.body, *self.reader.media_types, example=self.example),
            route_class_override=self.protocol.route_class,
        )

    async def serve(self, request: Request, services: Services, gate: Gate) -> JSONResponse:
        with services.metrics.track(self.protocol.name):
            gate.needs_no_body(self.protocol, request.headers)
            fields = await self.reader.read(limited(request, services.limits))
            with gate.admitted(self.protocol, request.headers, fields):
                return JSONResponse(await self.answer(services, parse(self.body, fields)))
