"""For those who run the server: is it alive, is it ready, how is it doing."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from serving.api.services import Services


def router(services: Services) -> APIRouter:
    routes = APIRouter(tags=["operations"])

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """200 while the process is alive."""
        return {"status": "ok"}

    @routes.get("/ready")
    async def ready() -> JSONResponse:
        """200 while requests are served; 503 while loading, draining, or after a failure."""
        if services.is_ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "not ready"}, 503)

    @routes.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics of all replicas."""
        return Response(await services.exposition(), media_type=services.metrics.content_type)

    return routes
