"""Routes for operators: liveness, readiness, metrics, and models that are loaded and unloaded."""

import time
from dataclasses import replace
from pathlib import Path

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from serving.api.http.authentication import Authenticator, KeyCheck
from serving.api.http.bodies import READS_JSON, limit_body, validate
from serving.api.http.openapi import (
    COMMON_STATUSES,
    JSON,
    DescribedBody,
    Responses,
    describe_text,
)
from serving.api.http.protocol import PlainError, Protocol, plain_error
from serving.api.http.routing import ProtocolRoute, Routes
from serving.api.http.services import Operators, Services
from serving.observability.metrics import Metrics

PROTOCOL = Protocol("operations", "", plain_error, PlainError)
_OPERATORS_PROTOCOL = replace(PROTOCOL, needs_operators_key=True)


class Status(TypedDict):
    status: str


class RecentMetrics(TypedDict):
    seconds_ago: float
    metrics: str


class ChangedModel(TypedDict):
    model: str


class LoadBody(BaseModel):
    """The model to load. bundle: absolute path of a folder on the server's machine. group: the
    worker group; the first by default. replace: takes the place of the model of its name.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    bundle: str
    group: str | None = None
    replace: bool = False


_OPERATIONS_PORT = {
    "url": "http://localhost:{port}",
    "description": "The operations port, from the machine itself.",
    "variables": {"port": {"default": "8001", "description": "`operations_port` of the server"}},
}
_NOT_READY: Responses = {
    503: {"model": Status | PlainError, "description": "Loading, draining, or failed."}
}
_METRICS = describe_text(Metrics.content_type, "Prometheus' text format.")


def routes(services: Services) -> list[ProtocolRoute]:
    routes = Routes(PROTOCOL, "operations", services.authenticator)
    key_check = KeyCheck.BEFORE_HANDLER if services.metrics_need_key else KeyCheck.NONE

    async def health(request: Request) -> JSONResponse:
        """Answer 200 while the process is alive."""
        return JSONResponse({"status": "ok"})

    async def ready(request: Request) -> JSONResponse:
        """Answer 200 while requests are served; 503 while loading, draining, or after a failure."""
        if services.is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503)

    async def metrics(request: Request) -> Response:
        """Return Prometheus metrics of all replicas."""
        return Response(await services.exposition(), media_type=services.metrics.content_type)

    async def recent(request: Request) -> JSONResponse:
        """Return what the page draws the load from: some metrics of the last two minutes, summed
        over models and replicas.
        """
        now = time.time()
        readings: list[RecentMetrics] = [
            {"seconds_ago": now - reading.seconds, "metrics": reading.text}
            for reading in await services.recent_metrics()
        ]
        return JSONResponse(readings)

    free = KeyCheck.NONE
    routes.add("GET", "/health", health, Status, COMMON_STATUSES, key_check=free)
    routes.add("GET", "/ready", ready, Status, (500,), key_check=free, other_statuses=_NOT_READY)
    routes.add(
        *("GET", "/metrics", metrics, None, COMMON_STATUSES),
        content=_METRICS,
        key_check=key_check,
        response_class=Response,
    )
    of_recent = list[RecentMetrics]
    routes.add("GET", "/metrics/recent", recent, of_recent, COMMON_STATUSES, key_check=key_check)
    if services.operators:
        routes.routes.extend(_model_routes(services, services.operators))
    return routes.routes


def _model_routes(services: Services, operators: Operators) -> list[ProtocolRoute]:
    """Return routes that are open only at the operations port, on the machine itself."""

    async def load(request: Request) -> JSONResponse:
        """Load a bundle into all replicas of a group; answer once they serve it."""
        fields = await READS_JSON.read(limit_body(request, services.max_body_bytes))
        body = validate(LoadBody, fields)
        card = await operators.loader.load(Path(body.bundle), body.group, body.replace)
        return JSONResponse({"model": card.name}, 201)

    async def unload(request: Request, name: str) -> JSONResponse:
        """Remove a model from all replicas; requests in progress are still answered."""
        await operators.loader.unload(name)
        return JSONResponse({"model": name})

    routes = Routes(
        _OPERATORS_PROTOCOL, "operations", Authenticator(operators.keys, services.rates)
    )
    body = DescribedBody(LoadBody, (JSON,), {"bundle": "/srv/bundles/en-fr"})
    statuses, extra = (400, *COMMON_STATUSES), {"servers": [_OPERATIONS_PORT]}
    routes.add(
        *("POST", "/models", load, ChangedModel, (*statuses, 413, 415)),
        status=201,
        body=body,
        extra=extra,
    )
    routes.add("DELETE", "/models/{name:path}", unload, ChangedModel, statuses, extra=extra)
    return routes.routes
