"""The ASGI application: all protocols, and the page for people at `/`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from serving.api import operations, score
from serving.api.deepl import protocol as deepl_protocol
from serving.api.deepl import routes as deepl
from serving.api.http.middleware import AccessLog, Guard, Heads
from serving.api.http.openapi import describe
from serving.api.http.protocol import install_error_handlers, protocol_at
from serving.api.http.services import Services
from serving.api.libretranslate import routes as libretranslate
from serving.api.openai import batches
from serving.api.openai import protocol as openai_protocol
from serving.api.openai import routes as openai

_PROTOCOLS = (
    libretranslate.PROTOCOL,
    openai_protocol.PROTOCOL,
    score.PROTOCOL,
    deepl_protocol.PROTOCOL,
    deepl_protocol.V3_PROTOCOL,
)
ENDPOINTS = (
    *libretranslate.ENDPOINTS,
    *openai.ENDPOINTS,
    *score.ENDPOINTS,
    *deepl.ENDPOINTS,
)


def create_app(services: Services) -> FastAPI:
    batch_jobs = batches.batches_of(services)

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        async with services.jobs.working(services.documents, services.memory_imports, batch_jobs):
            yield

    app = FastAPIOffline(
        redoc_url=None,
        title="Attendant",
        version=version("attendant"),
        description="Trained attention models over HTTP.",
        lifespan=working,
    )
    access = AccessLog(services.write_access)
    endpoints = {each.protocol.prefix + each.path: each.asgi_app(services) for each in ENDPOINTS}
    app.add_middleware(
        Guard,
        report=_report,
        access=access,
        endpoints=endpoints,
        in_progress=services.in_progress,
        tracing=services.tracing,
    )
    app.add_middleware(Heads)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    install_error_handlers(app, _report)
    for protocol in (libretranslate, openai, score, deepl, operations):
        app.include_router(protocol.router(services))
    app.include_router(batches.router(services, batch_jobs))
    add_page(app)
    others = (*deepl.OTHER_BODIES, *libretranslate.BODIES, *batches.BODIES)
    bodies = [*(endpoint.body for endpoint in ENDPOINTS), *others]
    describe(app, bodies, dict.fromkeys(protocol.error_type for protocol in _PROTOCOLS))
    return app


def _report(scope: Scope, error: BaseException) -> tuple[int, dict[str, Any]]:
    return protocol_at(scope, _PROTOCOLS).report(error)


_FOLDER = Path(__file__).parent / "page"
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-cache",  # cached, and validated by its ETag
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Page(StaticFiles):
    """Static files with the headers of the page."""

    def file_response(self, full_path: str | PathLike[str], *args: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *args, **options)
        response.headers.update(_HEADERS)
        return response


def add_page(app: FastAPI) -> None:
    page = _Page(directory=_FOLDER)

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        """Return the page; its files are below `/page`."""
        return await page.get_response("index.html", request.scope)

    app.mount("/page", page)
