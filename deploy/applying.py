"""Brings a configuration to a running Ray cluster, through Ray Serve's REST API.

Serve compares it to what runs: only groups that changed are replaced, replica by replica.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from deploy.asking import Refused, ask
from serving.errors import AttendantError

_PATH = "/api/serve/applications/"
_POLL_SECONDS = 1.0
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


def apply(
    dashboard: str,
    serve_config: dict[str, Any],
    token: str | None,
    timeout_seconds: float,
    tell: Callable[[str], None],
) -> None:
    """Return when every group runs. Raises AttendantError where one fails, or not in time."""
    url = dashboard.rstrip("/") + _PATH
    try:
        ask(url, serve_config, method="PUT", token=token)
        _follow(url, token, timeout_seconds, tell)
    except Refused as error:
        raise AttendantError(f"{url}: {error}") from None


def _follow(
    url: str, token: str | None, timeout_seconds: float, tell: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + timeout_seconds
    told: dict[str, str] = {}
    while time.monotonic() < deadline:
        applications = json.loads(ask(url, token=token))["applications"]
        for name, application in applications.items():
            status = application["status"]
            if told.get(name) != status:
                tell(f"{name}: {status.lower().replace('_', ' ')}")
                told[name] = status
            if status in _FAILED:
                raise AttendantError(f"group {name}: {application['message'].strip()}")
        if applications and {*told.values()} == {"RUNNING"}:
            return
        time.sleep(_POLL_SECONDS)
    raise AttendantError(f"not all groups run after {timeout_seconds:.0f} s")
