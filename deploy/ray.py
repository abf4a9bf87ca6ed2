"""Deploys a server's configuration to a running Ray cluster, through Ray Serve's REST API.

Serve replaces only the groups that changed, replica by replica. A replica that ends drains for half
a minute and keeps its CPUs for that time, and its successor has models to load: so, unless there is
no room, the successor starts first.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from deploy.smoke import RequestFailed, request
from serving.errors import AttendantError, ConfigError
from serving.server_config import ServerConfig, WorkerGroup
from serving.storage.opening import STATE_VARIABLE, has_password

DEPLOYMENT = "attendant"  # the name of the one deployment of each application
_PATH = "/api/serve/applications/"
_POLL_SECONDS = 1.0
_FAILED = ("DEPLOY_FAILED", "UNHEALTHY")


def serve_config(config: ServerConfig) -> dict[str, Any]:
    """Return Ray Serve's configuration, with an application for each worker group.

    Raise ConfigError for what a cluster cannot do, or must be given explicitly.
    """
    if problems := list(_problems(config)):
        raise ConfigError("the configuration", problems)
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": config.port},
        "logging_config": {"enable_access_log": False},
        "applications": [
            _application(number, group, config) for number, group in enumerate(config.groups)
        ],
    }


def surging(config: dict[str, Any]) -> dict[str, Any]:
    """Return the same configuration, in which a new replica starts before the old one ends."""
    override = {"name": DEPLOYMENT, "max_surge_percent": 1}  # rounded up to one replica
    applications = [
        {**application, "deployments": [override]} for application in config["applications"]
    ]
    return {**config, "applications": applications}


def _application(number: int, group: WorkerGroup, config: ServerConfig) -> dict[str, Any]:
    """Return the application of a group, which includes the options of the whole server."""
    of_server: dict[str, Any] = {}
    if config.access.model_fields_set:
        of_server["access"] = config.access
    if config.state:
        of_server["state"] = config.state
    if "drain_seconds" in config.model_fields_set:
        of_server["drain_seconds"] = config.drain_seconds
    values = group.model_copy(update=of_server).model_dump(mode="json", exclude_unset=True)
    return {
        "name": group.name,
        "route_prefix": "/" if number == 0 else f"/groups/{group.name}",
        "import_path": "serving.app:build",
        "args": {"name": group.name, **values},
    }


def _problems(config: ServerConfig) -> Iterator[str]:
    for group in config.groups:
        if group.cpus_per_replica is None:
            yield f"group {group.name}: cpus_per_replica: a cluster needs it"
        if group.device == "auto":
            yield f"group {group.name}: device: must be cpu or cuda on a cluster"
        if group.canary_percent is not None:
            yield f"group {group.name}: canary_percent: Ray Serve cannot route by weight"
        for bundle in group.bundles:
            if not bundle.is_absolute():
                yield f"group {group.name}: bundles: {bundle}: must be the path in the container"
    if config.state and has_password(config.state):
        yield (
            "state: Ray's dashboard would show the password: put the URL into the variable"
            f" {STATE_VARIABLE} of the containers, from a Secret"
        )
    if config.tls:
        yield "tls: in a cluster, the proxy or the Ingress in front of it has the certificate"
    if config.access.operators:
        yield (
            "access.operators: a cluster has the models of its configuration; "
            "change the configuration and apply it"
        )


def apply(
    dashboard: str,
    config: dict[str, Any],
    token: str | None,
    timeout_seconds: float,
    report: Callable[[str], None],
) -> None:
    """Deploy Serve's configuration and return when all groups run.

    report: called with each change of a group's status. Raise AttendantError if a group fails, or
    does not run in time.
    """
    url = dashboard.rstrip("/") + _PATH
    try:
        request(url, config, method="PUT", token=token)
        _wait(url, token, timeout_seconds, report)
    except RequestFailed as error:
        raise AttendantError(f"{url}: {error}") from None


def _wait(
    url: str, token: str | None, timeout_seconds: float, report: Callable[[str], None]
) -> None:
    deadline = time.monotonic() + timeout_seconds
    reported: dict[str, str] = {}
    applications: dict[str, Any] = {}
    while time.monotonic() < deadline:
        applications = json.loads(request(url, token=token))["applications"]
        for name, application in applications.items():
            status = application["status"]
            if reported.get(name) != status:
                report(f"{name}: {status.lower().replace('_', ' ')}")
                reported[name] = status
            if status in _FAILED:
                raise AttendantError(f"group {name}: {_cause(application)}")
        if applications and {*reported.values()} == {"RUNNING"}:
            return
        time.sleep(_POLL_SECONDS)
    waiting = [name for name, status in reported.items() if status != "RUNNING"]
    causes = [f"group {name}: {_cause(applications[name])}" for name in waiting]
    raise AttendantError("; ".join([f"not all groups run after {timeout_seconds:.0f} s", *causes]))


def _cause(application: dict[str, Any]) -> str:
    """Return the last line of a replica's error, or of Serve's message about the group."""
    deployments = application.get("deployments", {}).values()
    messages = [application["message"], *(deployment["message"] for deployment in deployments)]
    lines = "\n".join(messages).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"
