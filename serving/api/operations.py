"""Answers those who run the server: is it alive, is it ready, how is it doing."""

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.gate import Gate
from serving.api.http.openapi import OF_A_LIST, OF_ANY_ROUTE, described_text
from serving.api.http.plain_errors import PlainError, plain_error
from serving.api.http.protocol import Protocol
from serving.api.http.services import Services
from serving.metrics import Metrics

PROTOCOL = Protocol("operations", "", plain_error, PlainError)


class Status(TypedDict):
    status: str


_NOT_READY = {"model": Status | PlainError, "description": "Loading, draining, or failed."}
_READINESS = PROTOCOL.responses(Status, (500,)) | {503: _NOT_READY}
_METRICS = PROTOCOL.responses(None, OF_A_LIST) | {
    200: described_text(Metrics.content_type, "Prometheus' text format.")
}


def router(services: Services) -> APIRouter:
    routes = PROTOCOL.router("operations")

    @routes.get("/health", responses=PROTOCOL.responses(Status, OF_ANY_ROUTE))
    async def health() -> JSONResponse:
        """Answer 200 while the process is alive."""
        return JSONResponse({"status": "ok"})

    @routes.get("/ready", responses=_READINESS)
    async def ready() -> JSONResponse:
        """Answer 200 while requests are served; 503 while loading, draining, or after a failure."""
        if services.is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503)

    doors = [Depends(Gate(services.keys).door(PROTOCOL))] if services.metrics_need_key else []

    @routes.get("/metrics", response_class=Response, responses=_METRICS, dependencies=doors)
    async def metrics() -> Response:
        """Return Prometheus metrics of all replicas."""
        return Response(await services.exposition(), media_type=services.metrics.content_type)

    return routes
