"""Describes pods as every target on Kubernetes has them: not root, with what is needed alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from deploy.rendering.settings import SHARED_MEMORY_MIB, USER, WRITABLE, bundles_folder
from serving.server_config import ServerConfig

Spec = dict[str, Any]

_DNS_PORT = 53


def labels(config: ServerConfig) -> dict[str, str]:
    return {"app.kubernetes.io/name": "attendant", "app.kubernetes.io/instance": config.deploy.name}


def hardened() -> Spec:
    """Return the security context of a container: it may compute and connect, and that is all."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def pod(config: ServerConfig, container: Spec, more_volumes: list[Spec]) -> Spec:
    return {
        "terminationGracePeriodSeconds": 60,  # requests in progress have 30
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [*_volumes(config), *more_volumes],
    }


def resources(cpus: int, memory_mib: int, gpus: int = 0) -> Spec:
    """Return requests that are the limits: a neighbour's load changes nobody's latency."""
    amounts: Spec = {"cpu": str(cpus), "memory": f"{memory_mib}Mi"}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    return {"requests": amounts, "limits": amounts}


def mounts(config: ServerConfig) -> list[Spec]:
    writable = [{"name": _volume_of(path), "mountPath": path} for path in WRITABLE]
    shared = {"name": "shared-memory", "mountPath": "/dev/shm"}
    if not config.deploy.bundles_volume:
        return [*writable, shared]
    path = bundles_folder(config)
    return [*writable, shared, {"name": "bundles", "mountPath": path, "readOnly": True}]


def network_policy(
    config: ServerConfig, ingress: Sequence[Spec] = (), egress: Sequence[Spec] = ()
) -> Spec:
    """Let clients reach the port that serves; all else stays between the server's own pods."""
    own: Spec = {"podSelector": {"matchLabels": labels(config)}}
    dns = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    serving = {"ports": [{"protocol": "TCP", "port": config.port}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(config, config.deploy.name),
        "spec": {
            **own,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [serving, {"from": [own]}, *ingress],
            "egress": [{"to": [own]}, {"ports": dns}, *egress],
        },
    }


def metadata(config: ServerConfig, name: str, **more: Mapping[str, str]) -> Spec:
    return {"name": name, "labels": labels(config), **more}


def _volumes(config: ServerConfig) -> list[Spec]:
    memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MEMORY_MIB}Mi"}
    volumes: list[Spec] = [{"name": _volume_of(path), "emptyDir": {}} for path in WRITABLE]
    volumes.append({"name": "shared-memory", "emptyDir": memory})
    if claim := config.deploy.bundles_volume:
        source = {"claimName": claim, "readOnly": True}
        volumes.append({"name": "bundles", "persistentVolumeClaim": source})
    return volumes


def _volume_of(path: str) -> str:
    return path.strip("/").replace("/", "-")
