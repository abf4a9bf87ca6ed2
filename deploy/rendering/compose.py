"""Renders Docker Compose: the server in one container, and on request those that watch it."""

from typing import Any

import yaml

from deploy.rendering import settings
from deploy.rendering.files import Files, as_yaml, shipped
from serving.server_config import ServerConfig

_SERVER = "attendant"
_WATCHED_BY = {
    "prometheus/rules.yaml": "/etc/prometheus/rules.yaml",
    "grafana/datasource.yaml": "/etc/grafana/provisioning/datasources/attendant.yaml",
    "grafana/dashboards.yaml": "/etc/grafana/provisioning/dashboards/attendant.yaml",
    "grafana/attendant.json": "/var/lib/grafana/dashboards/attendant.json",
}
_SCRAPING = "prometheus/prometheus.yml"


def render(config: ServerConfig) -> Files:
    """Raises ConfigError where the configuration leaves open what a container must know."""
    settings.refuse_canary(config, "compose")
    settings.check_placement(config)
    return {
        "compose.yaml": as_yaml(_project(config)),
        "server.yaml": as_yaml(settings.in_a_container(config)),
        _SCRAPING: as_yaml(_scraping(config)),
        **{name: shipped(name) for name in _WATCHED_BY},
    }


def _project(config: ServerConfig) -> dict[str, Any]:
    project: dict[str, Any] = {
        "name": config.deploy.name,
        "services": {
            _SERVER: _server(config),
            "prometheus": _watcher("prom/prometheus:v3.5.0", 9090, "prometheus"),
            "grafana": _watcher("grafana/grafana:12.0.0", 3000, "grafana"),
        },
    }
    if volume := config.deploy.bundles_volume:
        project["volumes"] = {volume: {"external": True}}
    return project


def _server(config: ServerConfig) -> dict[str, Any]:
    volumes = [f"./server.yaml:{settings.CONFIG_PATH}:ro"]
    if volume := config.deploy.bundles_volume:
        volumes.append(f"{volume}:{settings.bundles_folder(config)}:ro")
    return {
        "image": config.deploy.image,
        "command": settings.COMMAND,
        "ports": [f"{_published_at(config)}:{config.port}"],
        "volumes": volumes,
        "read_only": True,
        "tmpfs": [f"{path}:uid={settings.USER}" for path in settings.WRITABLE],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "shm_size": f"{settings.SHARED_MEMORY_MIB}mb",
        "restart": "unless-stopped",
        "stop_grace_period": "45s",  # requests in progress have 30
        "healthcheck": {
            "test": ["CMD", "wget", "-q", "-O-", f"http://127.0.0.1:{config.port}/ready"],
            "interval": "5s",
            "start_period": "60s",
        },
        "deploy": {"resources": _resources(config)},
    }


def _published_at(config: ServerConfig) -> str:
    if ":" in config.host:
        return f"[{config.host.strip('[]')}]:{config.port}"
    return f"{config.host}:{config.port}"


def _resources(config: ServerConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        "limits": {
            "cpus": str(settings.cpus(config, scaled=False)),
            "memory": f"{settings.memory_mib(config, scaled=False)}m",
        }
    }
    if count := settings.gpus(config, scaled=False):
        device = {"driver": "nvidia", "count": count, "capabilities": ["gpu"]}
        found["reservations"] = {"devices": [device]}
    return found


def _watcher(image: str, port: int, name: str) -> dict[str, Any]:
    """Describe Prometheus or Grafana: they start with `--profile watch`, for this machine alone."""
    mounted = {path: at for path, at in _WATCHED_BY.items() if path.startswith(name)}
    if name == "prometheus":
        mounted[_SCRAPING] = "/etc/prometheus/prometheus.yml"
    return {
        "image": image,
        "profiles": ["watch"],
        "ports": [f"127.0.0.1:{port}:{port}"],
        "volumes": [f"./{path}:{at}:ro" for path, at in mounted.items()],
        "depends_on": [_SERVER],
    }


def _scraping(config: ServerConfig) -> dict[str, Any]:
    scraping: dict[str, Any] = yaml.safe_load(shipped(_SCRAPING))
    scraping["scrape_configs"][0]["static_configs"] = [{"targets": [f"{_SERVER}:{config.port}"]}]
    return scraping
