"""Renders a RayService for KubeRay: a Ray cluster with a kind of worker for each group.

Ray runs what it is told by whoever can connect, so its parts ask for a token, and a network policy
lets only KubeRay's operator near the dashboard, through which it deploys.
"""

from typing import Any

from deploy.rendering import ray, settings
from deploy.rendering.files import Files, as_yaml
from deploy.rendering.pods import (
    Spec,
    hardened,
    labels,
    metadata,
    mounts,
    network_policy,
    pod,
    resources,
)
from serving.server_config import ServerConfig, WorkerGroup

RAY_VERSION = "2.60.0"
_DASHBOARD_PORT = 8265
_API_PORTS = (443, 6443)  # of Kubernetes, which Ray's autoscaler asks for pods
_HEAD_PORTS = {"gcs-server": 6379, "dashboard": _DASHBOARD_PORT}
_HEAD_MEMORY_MIB = 4096
_OBJECT_STORE_BYTES = 128 * 2**20
ENVIRONMENT = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    # A request that a replica's end left without answer is asked of another one, as the server's
    # own HAProxy does.
    "RAY_SERVE_HAPROXY_RETRY_ON": "conn-failure empty-response",
    "RAY_SERVE_HAPROXY_RETRIES": "2",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_OPERATOR: Spec = {
    "namespaceSelector": {},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
}


def render(config: ServerConfig) -> Files:
    return {"rayservice.yaml": as_yaml(*objects(config))}


def objects(config: ServerConfig) -> list[Spec]:
    settings.refuse_canary(config, "rayservice")
    is_scaled = any(group.autoscaling for group in config.groups)
    operator = {"from": [_OPERATOR], "ports": _tcp(_DASHBOARD_PORT)}
    egress = [{"ports": _tcp(*_API_PORTS)}] if is_scaled else []
    return [_service(config, is_scaled), network_policy(config, [operator], egress)]


def _tcp(*ports: int) -> list[Spec]:
    return [{"protocol": "TCP", "port": port} for port in ports]


def _service(config: ServerConfig, is_scaled: bool) -> Spec:
    cluster: Spec = {
        "rayVersion": RAY_VERSION,
        "authOptions": {"mode": "token"},
        "headGroupSpec": _head(config, is_scaled),
        "workerGroupSpecs": [_workers(config, group) for group in config.groups],
    }
    if is_scaled:
        cluster["enableInTreeAutoscaling"] = True
        cluster["autoscalerOptions"] = {"version": "v2", "securityContext": hardened()}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": metadata(config, config.deploy.name),
        "spec": {"serveConfigV2": as_yaml(ray.serve_config(config)), "rayClusterConfig": cluster},
    }


def _head(config: ServerConfig, is_scaled: bool) -> Spec:
    container = _container(config, "ray-head", {**_HEAD_PORTS, "serve": config.port})
    container["resources"] = resources(1, _HEAD_MEMORY_MIB)
    template = _template(config, container)
    if is_scaled:
        del template["spec"]["automountServiceAccountToken"]  # the autoscaler asks for pods
    # No CPUs: replicas belong on workers. The dashboard answers KubeRay's operator.
    parameters = {"dashboard-host": "0.0.0.0", "num-cpus": "0"}
    return {"rayStartParams": _parameters(parameters), "template": template}


def _workers(config: ServerConfig, group: WorkerGroup) -> Spec:
    container = _container(config, "ray-worker", {"serve": config.port})
    num_gpus = 1 if settings.gpus_of(group) else 0
    container["resources"] = resources(
        group.cpus_per_replica or 1, config.deploy.memory_mib, num_gpus
    )
    container["readinessProbe"] = _readiness(config.port)
    least = group.autoscaling.min_replicas if group.autoscaling else group.replicas
    return {
        "groupName": group.name,
        "replicas": least,
        "minReplicas": least,
        "maxReplicas": group.max_replicas,
        "rayStartParams": _parameters({}),
        "template": _template(config, container),
    }


def _parameters(more: dict[str, str]) -> dict[str, str]:
    return {**more, "object-store-memory": str(_OBJECT_STORE_BYTES)}


def _template(config: ServerConfig, container: Spec) -> Spec:
    return {"metadata": {"labels": labels(config)}, "spec": pod(config, container, [])}


def _container(config: ServerConfig, name: str, ports: dict[str, int]) -> Spec:
    return {
        "name": name,
        "image": config.deploy.image,
        "env": [{"name": key, "value": value} for key, value in ENVIRONMENT.items()],
        "ports": [{"name": port, "containerPort": number} for port, number in ports.items()],
        "securityContext": hardened(),
        "volumeMounts": mounts(config),
    }


def _readiness(port: int) -> Spec:
    """Traffic comes once Serve's proxy is up and the models are loaded.

    Liveness is left to KubeRay's check of the raylet: /health does not answer before Serve has
    deployed, and a pod that waits for that is not to be killed.
    """
    ask = "wget --tries 1 -T 5 -q -O- http://localhost"
    command = f"{ask}:{port}/-/healthz | grep success && {ask}:{port}/ready"
    probe: dict[str, Any] = {"exec": {"command": ["bash", "-c", command]}}
    return {
        **probe,
        "initialDelaySeconds": 5,
        "periodSeconds": 5,
        "timeoutSeconds": 12,
        "failureThreshold": 2,
    }
