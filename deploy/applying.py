"""Brings a configuration to a running Ray cluster, through Ray Serve's REST API.

Serve compares it to what runs: only groups that changed are replaced, replica by replica. A
replica that was told to end drains for half a minute and keeps its CPUs for that time, and the one
that takes its place has models to load: so the new one comes first.
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
    applications: dict[str, Any] = {}
    while time.monotonic() < deadline:
        applications = json.loads(ask(url, token=token))["applications"]
        for name, application in applications.items():
            status = application["status"]
            if told.get(name) != status:
                tell(f"{name}: {status.lower().replace('_', ' ')}")
                told[name] = status
            if status in _FAILED:
                raise AttendantError(f"group {name}: {_cause(application)}")
        if applications and {*told.values()} == {"RUNNING"}:
            return
        time.sleep(_POLL_SECONDS)
    waiting = [name for name, status in told.items() if status != "RUNNING"]
    causes = [f"group {name}: {_cause(applications[name])}" for name in waiting]
    raise AttendantError("; ".join([f"not all groups run after {timeout_seconds:.0f} s", *causes]))


def _cause(application: dict[str, Any]) -> str:
    """Return the last line of what a replica raised, else of what Serve says of the group."""
    deployments = application.get("deployments", {}).values()
    messages = [application["message"], *(each["message"] for each in deployments)]
    lines = "\n".join(messages).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"
