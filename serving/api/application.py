"""The ASGI application: all protocols, and the page for people at `/`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from serving.api.http.authentication import KeyCheck
from serving.api.http.middleware import ErrorMiddleware, HeadMiddleware
from serving.api.http.openapi import describe
from serving.api.http.routing import ProtocolRoute, protocol_at, report_routing_errors
from serving.api.http.services import Services
from serving.api.libretranslate import routes as libretranslate
from serving.api.openai import batches
from serving.api.openai import protocol as openai_protocol
from serving.api.openai import routes as openai
from serving.version import VERSION

_PROTOCOLS = (
    libretranslate.PROTOCOL,
    openai_protocol.PROTOCOL,
    score.PROTOCOL,
    deepl_protocol.PROTOCOL,
    deepl_protocol.V3_PROTOCOL,
)
_PAGE_FOLDER = Path(__file__).parent / "page"
_PAGE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "media-src blob:",  # recordings that are played while their transcript is read
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _PAGE_POLICY,
    "Cache-Control": "no-cache",  # cached, and validated by its ETag
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def create_app(services: Services) -> FastAPI:
    """Return the application: its middleware, the innermost first, and its routes."""
    batch_jobs = batches.make_batches(services)

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        async with services.jobs.run_workers(
            services.documents, services.memory_imports, batch_jobs
        ):
            yield

    app = FastAPIOffline(
        redoc_url=None,
        title="Attendant",
        version=VERSION,
        description=f"Trained attention models over HTTP. {_describe_keys(services)}",
        lifespan=working,
    )
    app.add_middleware(
        ErrorMiddleware,
        report=_report,
        in_progress=services.in_progress,
        write_access=services.write_access,
        tracing=services.tracing,
    )
    app.add_middleware(HeadMiddleware)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    report_routing_errors(app, _report)
    for protocol in (libretranslate, openai, score, deepl, operations):
        app.router.routes.extend(protocol.routes(services))
    app.router.routes.extend(batches.routes(services, batch_jobs))
    _add_page(app)
    listed = [route for route in app.routes if isinstance(route, ProtocolRoute)]
    bodies = [route.body.cls for route in listed if route.body and route.include_in_schema]
    schemes = {
        name: scheme
        for route in listed
        if route.key_check is not KeyCheck.NONE and route.include_in_schema
        for name, scheme in route.protocol.security_schemes.items()
    }
    errors = dict.fromkeys(route.protocol.error_type for route in listed)
    describe(app, bodies, errors, schemes)
    return app


def _describe_keys(services: Services) -> str:
    if services.keys is None:
        return "This server needs no API key, and ignores those that it gets."
    return "This server needs an API key where a lock stands."


def _report(scope: Scope, error: BaseException) -> tuple[int, dict[str, Any]]:
    return protocol_at(scope, _PROTOCOLS).report(error)


class _Page(StaticFiles):
    """Static files with the headers of the page."""

    def file_response(self, full_path: str | PathLike[str], *args: Any, **options: Any) -> Response:
        response = super().file_response(full_path, *args, **options)
        response.headers.update(_PAGE_HEADERS)
        return response


def _add_page(app: FastAPI) -> None:
    page = _Page(directory=_PAGE_FOLDER)

    async def index(request: Request) -> Response:
        """Return the page; its files are below `/page`."""
        return await page.get_response("index.html", request.scope)

    app.add_route("/", index, include_in_schema=False)
    app.mount("/page", page)
