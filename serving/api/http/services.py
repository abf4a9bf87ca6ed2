"""What every protocol's routes are given."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from serving.config import TextLimits
from serving.metrics import Metrics
from serving.pipelines.catalog import Catalog


@dataclass(frozen=True)
class Services:
    """exposition: the text of `/metrics`, of all replicas."""

    catalog: Catalog
    limits: TextLimits
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    is_ready: Callable[[], bool]
