"""Routes for operators: liveness, readiness and metrics.

Operators with a key of their own may load and unload models.
"""

import time
from pathlib import Path

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.bodies import READS_JSON, limited, validated
from serving.api.http.endpoint import Gate
from serving.api.http.openapi import OF_A_LIST, OF_ANY_ROUTE, described_text
from serving.api.http.protocol import PlainError, Protocol, plain_error
from serving.api.http.services import Operators, Services
from serving.observability.metrics import Metrics
from serving.server_config import TextLimits

PROTOCOL = Protocol("operations", "", plain_error, PlainError)


class Status(TypedDict):
    status: str


class RecentMetrics(TypedDict):
    seconds_ago: float
    metrics: str


class LoadBody(BaseModel):
    """The model to load. bundle: absolute path of a folder on the server's machine. group: the
    worker group; the first by default. replace: takes the place of the model of its name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    bundle: str
    group: str | None = None
    replace: bool = False


_NOT_READY = {"model": Status | PlainError, "description": "Loading, draining, or failed."}
_READINESS = PROTOCOL.responses(Status, (500,)) | {503: _NOT_READY}
_METRICS = PROTOCOL.responses(None, OF_A_LIST) | {
    200: described_text(Metrics.content_type, "Prometheus' text format.")
}
_RECENT = PROTOCOL.responses(list[RecentMetrics], OF_A_LIST)


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

    doors = [Depends(Gate(services.keys).dependency(PROTOCOL))] if services.metrics_need_key else []

    @routes.get("/metrics", response_class=Response, responses=_METRICS, dependencies=doors)
    async def metrics() -> Response:
        """Return Prometheus metrics of all replicas."""
        return Response(await services.exposition(), media_type=services.metrics.content_type)

    @routes.get("/metrics/recent", responses=_RECENT, dependencies=doors)
    async def recent() -> JSONResponse:
        """Return what the page draws the load from: some metrics of the last two minutes, summed
        over models and replicas.
        """
        now = time.time()
        readings: list[RecentMetrics] = [
            {"seconds_ago": now - each.seconds, "metrics": each.text}
            for each in await services.recent_metrics()
        ]
        return JSONResponse(readings)

    if services.operators:
        _add_changes(routes, services.operators, services.limits)
    return routes


def _add_changes(routes: APIRouter, operators: Operators, limits: TextLimits) -> None:
    """Add routes that are open only at the operations port, so OpenAPI does not list them."""
    loader = operators.loader
    with_key = [Depends(Gate(operators.keys).dependency(PROTOCOL))]

    @routes.post("/models", dependencies=with_key, include_in_schema=False)
    async def load(request: Request) -> JSONResponse:
        """Load a bundle into all replicas of a group; answer once they serve it."""
        body = validated(LoadBody, await READS_JSON.read(limited(request, limits)))
        card = await loader.load(Path(body.bundle), body.group, body.replace)
        return JSONResponse({"model": card.name}, 201)

    @routes.delete("/models/{name:path}", dependencies=with_key, include_in_schema=False)
    async def unload(name: str) -> JSONResponse:
        """Remove a model from all replicas; requests in progress are still answered."""
        await loader.unload(name)
        return JSONResponse({"model": name})
