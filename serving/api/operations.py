"""For those who run the server: is it alive, is it ready, how is it doing."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from serving.api.http.answers import PlainError, Status
from serving.api.http.openapi import OF_ANY_ROUTE, responses, text
from serving.api.http.services import Services
from serving.metrics import Metrics

_NOT_READY = {"model": Status | PlainError, "description": "Loading, draining, or failed."}
_READINESS = responses(Status, PlainError, (500,)) | {503: _NOT_READY}
_METRICS = responses(None, PlainError, OF_ANY_ROUTE) | {
    200: text(Metrics.content_type, "Prometheus' text format.")
}


def router(services: Services) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/health", responses=responses(Status, PlainError, OF_ANY_ROUTE))
    async def health() -> JSONResponse:
        """200 while the process is alive."""
        return JSONResponse({"status": "ok"})

    @routes.get("/ready", responses=_READINESS)
    async def ready() -> JSONResponse:
        """200 while requests are served; 503 while loading, draining, or after a failure."""
        if services.is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503)

    @routes.get("/metrics", response_class=Response, responses=_METRICS)
    async def metrics() -> Response:
        """Prometheus metrics of all replicas."""
        return Response(await services.exposition(), media_type=services.metrics.content_type)

    return routes
