"""All protocols as one ASGI application."""

from importlib.metadata import version

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware

from serving.api import operations
from serving.api.http.errors import ErrorBody, install_error_handlers
from serving.api.http.guard import Guard, Heads
from serving.api.http.openapi import describe_bodies
from serving.api.http.services import Services
from serving.api.libretranslate import routes as libretranslate
from serving.api.openai import routes as openai
from serving.api.scoring import routes as scoring


def create_app(services: Services) -> FastAPI:
    app = FastAPIOffline(
        redoc_url=None,
        title="Attendant",
        version=version("attendant"),
        description="Trained attention models over HTTP.",
    )
    app.add_middleware(Guard, body_of=_error_body_at)
    app.add_middleware(Heads)
    app.add_middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"]
    )
    install_error_handlers(app, _error_body_at)
    for protocol in (libretranslate, openai, scoring, operations):
        app.include_router(protocol.router(services))
    describe_bodies(app, (*libretranslate.BODIES, *openai.BODIES, *scoring.BODIES))
    return app


def _error_body_at(path: str) -> ErrorBody:
    if path.startswith(openai.PREFIX + "/"):
        return openai.error_body_at(path)
    return scoring.error_body if path == scoring.PATH else libretranslate.error_body
