"""Renders the configuration that Ray Serve takes: an application for each worker group."""

from typing import Any

from deploy.rendering import settings
from deploy.rendering.files import Files, as_yaml
from serving.server_config import ServerConfig, WorkerGroup

FILE = "serve.yaml"


def render(config: ServerConfig) -> Files:
    settings.refuse_canary(config, "ray")
    return {FILE: as_yaml(serve_config(config))}


def serve_config(config: ServerConfig) -> dict[str, Any]:
    """Raises ConfigError where it leaves open what a cluster must know."""
    settings.check_placement(config)
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": "0.0.0.0", "port": config.port},
        "logging_config": {"enable_access_log": False},
        "applications": [_application(number, group) for number, group in enumerate(config.groups)],
    }


def _application(number: int, group: WorkerGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "route_prefix": "/" if number == 0 else f"/groups/{group.name}",
        "import_path": "serving.app:build",
        "args": {"name": group.name, **group.model_dump(mode="json", exclude_unset=True)},
    }
