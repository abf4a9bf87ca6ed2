"""Joins all protocols into one ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Scope

from serving.api import operations
from serving.api.deepl import protocol as deepl_protocol
from serving.api.deepl import routes as deepl
from serving.api.front_page import add_page
from serving.api.http.access_log import AccessLog
from serving.api.http.error_responses import install_error_handlers
from serving.api.http.guard import Guard, Heads
from serving.api.http.openapi import describe
from serving.api.http.protocol import protocol_at
from serving.api.http.services import Services
from serving.api.libretranslate import files
from serving.api.libretranslate import routes as libretranslate
from serving.api.openai import batches, tokens
from serving.api.openai import protocol as openai_protocol
from serving.api.openai import routes as openai
from serving.api.openai.encoding import routes as encoding
from serving.api.scoring import routes as scoring

_PROTOCOLS = (
    libretranslate.PROTOCOL,
    openai_protocol.PROTOCOL,
    scoring.PROTOCOL,
    deepl_protocol.PROTOCOL,
    deepl_protocol.V3_PROTOCOL,
)
ENDPOINTS = (
    *libretranslate.ENDPOINTS,
    *openai.ENDPOINTS,
    *encoding.ENDPOINTS,
    *tokens.QUESTIONS,
    *scoring.ENDPOINTS,
    *deepl.ENDPOINTS,
)


def create_app(services: Services) -> FastAPI:
    kept = batches.kept(services)

    @asynccontextmanager
    async def working(app: FastAPI) -> AsyncIterator[None]:
        async with services.documents.working(), kept.working():
            yield

    app = FastAPIOffline(
        redoc_url=None,
        title="Attendant",
        version=version("attendant"),
        description="Trained attention models over HTTP.",
        lifespan=working,
    )
    access = AccessLog(services.write_access)
    app.add_middleware(Guard, report=_report, access=access, tracing=services.tracing)
    app.add_middleware(Heads)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    install_error_handlers(app, _report)
    for protocol in (libretranslate, openai, encoding, tokens, scoring, deepl, operations):
        app.include_router(protocol.router(services))
    app.include_router(batches.router(services, kept))
    add_page(app)
    others = (*deepl.OTHER_BODIES, *files.BODIES, *batches.BODIES)
    bodies = [*(endpoint.body for endpoint in ENDPOINTS), *others]
    describe(app, bodies, {protocol.error_type for protocol in _PROTOCOLS})
    return app


def _report(scope: Scope, error: BaseException) -> tuple[int, dict[str, Any]]:
    return protocol_at(scope, _PROTOCOLS).report(error)
