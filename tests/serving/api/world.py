"""What a test of the protocols holds in its hands."""

from dataclasses import dataclass

import httpx

from serving.metrics import Metrics
from tests.serving.pipelines.fakes import FakeEngine


@dataclass
class World:
    client: httpx.AsyncClient
    translator_engine: FakeEngine
    generator_engine: FakeEngine
    metrics: Metrics
    readiness: list[bool]
