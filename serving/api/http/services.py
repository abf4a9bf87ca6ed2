"""Holds what the routes of every protocol work with."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from serving.access.key_ring import KeyRing
from serving.detection.identify import Identifier
from serving.metrics import Metrics
from serving.pipelines.catalog import Catalog
from serving.server_config import TextLimits


@dataclass(frozen=True)
class Services:
    """Holds the parts of a server.

    exposition: the text of `/metrics`, of all replicas.
    keys: None lets everyone in.
    metrics_need_key: so does `/metrics`, which else is open.
    write_access: takes the lines of the access log; None where it is off.
    """

    catalog: Catalog
    limits: TextLimits
    metrics: Metrics
    exposition: Callable[[], Awaitable[bytes]]
    is_ready: Callable[[], bool]
    keys: KeyRing | None = None
    metrics_need_key: bool = False
    write_access: Callable[[str], None] | None = None
    identifier: Identifier = field(default_factory=Identifier)
