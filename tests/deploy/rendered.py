"""Configurations of servers, and what every manifest must fulfil."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from serving.server_config import ServerConfig, parse_config

ROOT = Path(__file__).parents[2]
KUBERNETES_VERSIONS = ("1.29", "1.35")
SCHEMAS = Path(__file__).with_name("schemas")  # of custom resources
# Those that the profile `restricted` of the Pod Security Standards allows.
VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
)

GROUP = {
    "name": "translators",
    "bundles": ["/models/en-fr", "/models/de-en"],
    "device": "cpu",
    "cpus_per_replica": 3,
}
SCALED = {**GROUP, "autoscaling": {"min_replicas": 2, "max_replicas": 5, "queued_tokens": 700}}
ON_GPUS = {**GROUP, "name": "writers", "device": "cuda", "replicas": 2, "gpus_per_replica": 0.5}


def config(*groups: dict[str, Any], **changes: Any) -> ServerConfig:
    return parse_config("the test", {"port": 8123, "groups": list(groups or [GROUP]), **changes})


def documents(text: str) -> dict[str, Any]:
    """Return the objects of a manifest by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all(text) if each}


def check(manifest: Any) -> None:
    """Raise ValidationError for what Kubernetes would refuse."""
    schema = SCHEMAS / f"{manifest['kind']}.json"
    if schema.exists():
        jsonschema.validate(manifest, json.loads(schema.read_text(encoding="utf-8")))
        return
    for version in KUBERNETES_VERSIONS:
        kubernetes_validate.validate(manifest, version, strict=True)


def pod_specs(manifest: Any) -> Iterator[Any]:
    """Yield the specifications of pods anywhere in an object."""
    if isinstance(manifest, dict):
        if "containers" in manifest:
            yield manifest
        for value in manifest.values():
            yield from pod_specs(value)
    if isinstance(manifest, list):
        for value in manifest:
            yield from pod_specs(value)


def check_restricted(spec: Any) -> None:
    """Assert what the profile `restricted` of the Pod Security Standards asks of a pod.

    The numeric user is what lets a kubelet see that an image's user is not root.
    """
    assert not any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))
    context = spec["securityContext"]
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for volume in spec.get("volumes", []):
        [kind] = volume.keys() - {"name"}
        assert kind in VOLUMES
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        assert {*container["securityContext"]} <= {
            "allowPrivilegeEscalation",
            "readOnlyRootFilesystem",
            "capabilities",
        }
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPort" in port for port in container.get("ports", []))


def check_hardening(spec: Any) -> None:
    """Assert that a pod can do no more than serve."""
    check_restricted(spec)
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"] == container["resources"]["requests"]
        mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", "/home/attendant", "/dev/shm"} <= mounted
