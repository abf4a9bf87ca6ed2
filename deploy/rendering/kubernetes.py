"""Renders plain Kubernetes: pods that each run the whole server, and what keeps enough of them.

Pods are scaled on the tokens that wait, a metric that an adapter brings to Kubernetes; a part of
the requests goes to a canary by the weights of a Gateway's route.
"""

import hashlib
from pathlib import PurePath

from deploy.rendering import settings
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
from serving.server_config import Autoscaling, Canary, ServerConfig

_START_SECONDS = 300  # to load the models
_PROBE_SECONDS = 5
_TRACK = "attendant/track"


def render(config: ServerConfig) -> Files:
    return {"kubernetes.yaml": as_yaml(*objects(config))}


def objects(config: ServerConfig) -> list[Spec]:
    """Return all objects. Raises ConfigError where pods cannot do what the configuration says."""
    settings.check_placement(config)
    settings.check_pods(config)
    name, scaling = config.deploy.name, config.groups[0].autoscaling
    found = [
        _config_map(config),
        _deployment(config, name, config.deploy.image, "stable"),
        _service(config, name, "stable"),
        _disruption_budget(config),
        network_policy(config),
    ]
    if scaling:
        found.append(_autoscaler(config, scaling))
    if canary := config.deploy.canary:
        found += _canary(config, canary)
    return found


def _config_map(config: ServerConfig) -> Spec:
    text = as_yaml(settings.in_a_pod(config))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(config, config.deploy.name),
        "data": {PurePath(settings.CONFIG_PATH).name: text},
    }


def _deployment(config: ServerConfig, name: str, image: str, track: str) -> Spec:
    own = {**labels(config), _TRACK: track}
    scaling = config.groups[0].autoscaling
    spec: Spec = {
        "selector": {"matchLabels": own},
        # A new pod serves before an old one goes.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": own, "annotations": _annotations(config)},
            "spec": pod(config, _container(config, image), [_config_volume(config)]),
        },
    }
    if track != "stable" or not scaling:
        spec = {"replicas": 1, **spec}  # else they are the autoscaler's to count
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(config, name),
        "spec": spec,
    }


def _annotations(config: ServerConfig) -> dict[str, str]:
    """Return what starts pods anew when the configuration changes, and what finds their metrics."""
    text = as_yaml(settings.in_a_pod(config))
    return {
        "attendant/configuration": hashlib.sha256(text.encode()).hexdigest(),
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(config.port),
    }


def _container(config: ServerConfig, image: str) -> Spec:
    return {
        "name": "attendant",
        "image": image,
        "args": settings.COMMAND,
        "ports": [{"name": "http", "containerPort": config.port}],
        "resources": resources(
            settings.cpus(config, scaled=True),
            settings.memory_mib(config, scaled=True),
            settings.gpus(config, scaled=True),
        ),
        "securityContext": hardened(),
        "startupProbe": _probe("/ready", _START_SECONDS // _PROBE_SECONDS),
        "readinessProbe": _probe("/ready", 2),
        "livenessProbe": _probe("/health", 6),
        # Whoever routes here hears of the end before connections are refused.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
        "volumeMounts": [
            *mounts(config),
            {"name": "config", "mountPath": _folder(), "readOnly": True},
        ],
    }


def _probe(path: str, failures: int) -> Spec:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": _PROBE_SECONDS,
        "timeoutSeconds": _PROBE_SECONDS,
        "failureThreshold": failures,
    }


def _folder() -> str:
    return str(PurePath(settings.CONFIG_PATH).parent)


def _config_volume(config: ServerConfig) -> Spec:
    return {"name": "config", "configMap": {"name": config.deploy.name}}


def _service(config: ServerConfig, name: str, track: str) -> Spec:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(config, name),
        "spec": {
            "selector": {**labels(config), _TRACK: track},
            "ports": [{"name": "http", "port": config.port, "targetPort": "http"}],
        },
    }


def _disruption_budget(config: ServerConfig) -> Spec:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(config, config.deploy.name),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(config)}},
    }


def _autoscaler(config: ServerConfig, scaling: Autoscaling) -> Spec:
    target = {"type": "AverageValue", "averageValue": str(scaling.queued_tokens)}
    metric = {"metric": {"name": "attendant_waiting_tokens"}, "target": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata(config, config.deploy.name),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": config.deploy.name,
            },
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "metrics": [{"type": "Pods", "pods": metric}],
        },
    }


def _canary(config: ServerConfig, canary: Canary) -> list[Spec]:
    name = f"{config.deploy.name}-canary"
    return [
        _deployment(config, name, canary.image, "canary"),
        _service(config, name, "canary"),
        _route(config, canary, name),
    ]


def _route(config: ServerConfig, canary: Canary, name: str) -> Spec:
    weights = {config.deploy.name: 100 - canary.weight, name: canary.weight}
    backends = [
        {"name": service, "port": config.port, "weight": weight}
        for service, weight in weights.items()
    ]
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(config, config.deploy.name),
        "spec": {"parentRefs": [{"name": canary.gateway}], "rules": [{"backendRefs": backends}]},
    }
