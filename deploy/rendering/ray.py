"""Renders the configuration that Ray Serve takes: an application for each worker group."""

from typing import Any

from deploy.rendering import settings
from deploy.rendering.files import Files, as_yaml
from serving.server_config import ServerConfig, WorkerGroup

FILE = "serve.yaml"
DEPLOYMENT = "attendant"  # of each application


def render(config: ServerConfig) -> Files:
    settings.refuse_canary(config, "ray")
    return {FILE: as_yaml(serve_config(config))}


def serve_config(config: ServerConfig) -> dict[str, Any]:
    """Raises ConfigError where it leaves open what a cluster must know."""
    settings.check_placement(config)
    settings.refuse_canary_groups(config)
    settings.refuse_operators(config, "a cluster's groups are what the configuration says")
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": config.port},
        "logging_config": {"enable_access_log": False},
        "applications": [
            _application(number, group, _of_all(config))
            for number, group in enumerate(config.groups)
        ],
    }


def surging(config: dict[str, Any]) -> dict[str, Any]:
    """Return the same for a cluster with room for one more replica of each group that changes: an
    old replica serves until a new one does.
    """
    override = {"name": DEPLOYMENT, "max_surge_percent": 1}  # rounded up to one replica
    applications = [{**each, "deployments": [override]} for each in config["applications"]]
    return {**config, "applications": applications}


def _of_all(config: ServerConfig) -> dict[str, Any]:
    """Return what is said of the whole server, and is not as it would be unsaid."""
    access = {"access": config.access} if config.access.model_fields_set else {}
    return {**access, **({"state_dir": config.state_dir} if config.state_dir else {})}


def _application(number: int, group: WorkerGroup, of_all: dict[str, Any]) -> dict[str, Any]:
    """Return an application, which has to be told itself what is said of the whole server."""
    told = group.model_copy(update=of_all)
    return {
        "name": group.name,
        "route_prefix": "/" if number == 0 else f"/groups/{group.name}",
        "import_path": "serving.app:build",
        "args": {"name": group.name, **told.model_dump(mode="json", exclude_unset=True)},
    }
