"""The application over a bundle and its real engine, and a client that talks to it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from serving.api.application import create_app
from serving.api.http.services import Services
from serving.engine.config import EngineConfig
from serving.observability.metrics import Metrics
from serving.pipelines.loading import open_model
from serving.server_config import TextLimits
from tests.serving.api.conftest import reused_app

CONFIG = EngineConfig(slots=16, threads=1)


@asynccontextmanager
async def app_over(
    bundle: Path, config: EngineConfig = CONFIG, **access: Any
) -> AsyncIterator[FastAPI]:
    """access: further fields of Services; with some, the application works on its jobs too."""
    async with open_model(bundle, config) as catalog:
        metrics = Metrics("r1")

        async def exposition() -> bytes:
            return metrics.exposition()

        limits = TextLimits(max_characters=20_000, max_segments=20)
        services = Services(catalog, limits, metrics, exposition, lambda: True, **access)
        if not access:
            with reused_app(services) as app:
                yield app
            return
        app = create_app(services)
        async with app.router.lifespan_context(app):
            yield app


@asynccontextmanager
async def client_over(
    bundle: Path, config: EngineConfig = CONFIG, **access: Any
) -> AsyncIterator[httpx.AsyncClient]:
    async with app_over(bundle, config, **access) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://attendant") as client:
            yield client
