"""Holds what the routes of every protocol work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving.metrics import Metrics
from serving.pipelines.catalog import Catalog
from serving.server_config import TextLimits


@dataclass(frozen=True)
class Services:
    """Holds the parts of a server. exposition: the text of `/metrics`, of all replicas."""

    catalog: Catalog
    limits: TextLimits
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    is_ready: Callable[[], bool]
