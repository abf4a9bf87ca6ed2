"""Holds what a test of the protocols holds in its hands."""

from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from serving.api.http.services import Services
from serving.observability.metrics import Metrics
from tests.serving.pipelines.fakes import FakeEngine


@dataclass
class World:
    app: FastAPI
    client: httpx.AsyncClient
    translator_engine: FakeEngine
    generator_engine: FakeEngine
    metrics: Metrics
    readiness: list[bool]
    services: Services
