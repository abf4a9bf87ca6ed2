"""Serves what is asked over HTTP and needs no model: the steps from a request to its answer."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from serving.api.http.gate import Gate
from serving.api.http.openapi import OF_A_BODY, described_body
from serving.api.http.protocol import Protocol
from serving.api.http.reading.bodies import AnyBody, parse
from serving.api.http.reading.fields import FieldReader, limited
from serving.api.http.services import Services


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
