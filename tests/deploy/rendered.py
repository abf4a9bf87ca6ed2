"""A server's configuration, and what is rendered from it."""

from pathlib import Path
from typing import Any

import yaml

from serving.server_config import ServerConfig, parse_config

ROOT = Path(__file__).parents[2]

GROUP = {
    "name": "translators",
    "bundles": ["/models/en-fr", "/models/de-en"],
    "device": "cpu",
    "cpus_per_replica": 3,
}
SCALED = {**GROUP, "autoscaling": {"min_replicas": 2, "max_replicas": 5, "queued_tokens": 700}}
ON_GPUS = {**GROUP, "name": "writers", "device": "cuda", "replicas": 2, "gpus_per_replica": 0.5}
CANARY = {"image": "attendant:next", "weight": 10, "gateway": "public"}


def config(*groups: dict[str, Any], port: int = 8123, **deploy: Any) -> ServerConfig:
    deploy = {"image": "registry/attendant:7", "memory_mib": 3000, **deploy}
    value = {"port": port, "groups": list(groups or [GROUP]), "deploy": deploy}
    return parse_config("the test", value)


def documents(text: str) -> dict[str, Any]:
    """Return the objects of a manifest; of several of a kind the first one."""
    found: dict[str, Any] = {}
    for each in yaml.safe_load_all(text):
        found.setdefault(each["kind"], each)
    return found
