"""Tests that what is rendered for Kubernetes holds under Kubernetes' own schemas, and says each
thing once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.rendering import kubernetes, rayservice
from serving.errors import ConfigError
from serving.server_config import Access, ServerConfig, Tls, parse_config
from tests.deploy.rendered import CANARY, GROUP, ON_GPUS, SCALED, config, documents

KUBERNETES_VERSION = "1.35"
TLS = Tls(certificate=Path("/c.pem"), key=Path("/k.pem"))
OPERATORS = Access(operators=Path("/operators.json"))
NOT_ITS_OWN = ("HTTPRoute", "RayService")  # kinds that Kubernetes learns from others
CONFIGURATIONS = [
    pytest.param(config(), id="one group"),
    pytest.param(config(GROUP, ON_GPUS), id="two groups, one on GPUs"),
    pytest.param(config(SCALED, bundles_volume="models"), id="scaled, with a volume"),
    pytest.param(config(SCALED, canary=CANARY), id="with a canary"),
]


def check(manifest: Any) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES_VERSION, strict=True)


@pytest.mark.parametrize("server", CONFIGURATIONS)
def test_kubernetes_accepts_every_object(server: ServerConfig) -> None:
    objects = list(yaml.safe_load_all(kubernetes.render(server)["kubernetes.yaml"]))
    for manifest in objects:
        if manifest["kind"] not in NOT_ITS_OWN:
            check(manifest)
    assert len(objects) >= 5


def test_a_wrong_object_is_found() -> None:
    deployment = documents(kubernetes.render(config())["kubernetes.yaml"])["Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment)


def pod_specs(manifest: Any) -> Iterator[Any]:
    """Yield the specifications of pods that lie anywhere in an object."""
    if isinstance(manifest, dict):
        if "containers" in manifest:
            yield manifest
        for value in manifest.values():
            yield from pod_specs(value)
    if isinstance(manifest, list):
        for value in manifest:
            yield from pod_specs(value)


@pytest.mark.parametrize("server", CONFIGURATIONS[:3])
def test_kubernetes_accepts_the_pods_of_a_rayservice(server: ServerConfig) -> None:
    service = documents(rayservice.render(server)["rayservice.yaml"])["RayService"]
    found = list(pod_specs(service))
    for spec in found:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        check(pod)
    assert len(found) == 1 + len(server.groups)


@pytest.mark.parametrize("render", [kubernetes.render, rayservice.render])
def test_no_pod_can_do_more_than_serve(render: Any) -> None:
    (text,) = render(config(GROUP, bundles_volume="models")).values()
    specs = [spec for each in yaml.safe_load_all(text) for spec in pod_specs(each)]
    assert specs
    for spec in specs:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            own = container["securityContext"]
            assert own["readOnlyRootFilesystem"] is True
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"] == container["resources"]["requests"]
            mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
            assert {"/tmp", "/home/attendant", "/dev/shm"} <= {*mounted}
            assert mounted["/models"]["readOnly"] is True


def test_the_deployment_runs_the_configuration() -> None:
    server = config(GROUP, ON_GPUS)
    objects = documents(kubernetes.render(server)["kubernetes.yaml"])
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry/attendant:7"
    assert container["resources"]["limits"] == {
        "cpu": "9",
        "memory": "9000Mi",
        "nvidia.com/gpu": "1",
    }
    assert container["ports"] == [{"name": "http", "containerPort": 8123}]
    assert objects["Service"]["spec"]["ports"][0]["port"] == 8123
    assert {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")} == {
        "/ready",
        "/health",
    }
    (text,) = objects["ConfigMap"]["data"].values()
    inside = parse_config("the pod", yaml.safe_load(text))
    assert (inside.host, inside.port) == ("0.0.0.0", 8123)
    assert inside.groups == server.groups


def test_pods_start_anew_when_the_configuration_changes() -> None:
    def annotation(server: ServerConfig) -> Any:
        deployment = documents(kubernetes.render(server)["kubernetes.yaml"])["Deployment"]
        return deployment["spec"]["template"]["metadata"]["annotations"]["attendant/configuration"]

    assert annotation(config()) == annotation(config())
    assert annotation(config()) != annotation(config({**GROUP, "slots": 8}))


def test_pods_are_scaled_on_waiting_tokens() -> None:
    objects = documents(kubernetes.render(config(SCALED))["kubernetes.yaml"])
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 5)
    (metric,) = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "attendant_waiting_tokens"
    assert metric["pods"]["target"]["averageValue"] == "700"
    assert "replicas" not in objects["Deployment"]["spec"]
    (text,) = objects["ConfigMap"]["data"].values()
    (inside,) = parse_config("the pod", yaml.safe_load(text)).groups
    assert inside.max_replicas == 1


def test_a_canary_gets_its_share() -> None:
    text = kubernetes.render(config(canary=CANARY))["kubernetes.yaml"]
    objects = list(yaml.safe_load_all(text))
    (route,) = [each["spec"] for each in objects if each["kind"] == "HTTPRoute"]
    shares = {each["name"]: each["weight"] for each in route["rules"][0]["backendRefs"]}
    assert shares == {"attendant": 90, "attendant-canary": 10}
    services = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Service"}
    deployments = {
        each["metadata"]["name"]: each for each in objects if each["kind"] == "Deployment"
    }
    assert {*services} == {*deployments} == {*shares}
    for name, service in services.items():
        pods = deployments[name]["spec"]["template"]["metadata"]["labels"]
        assert service["spec"]["selector"].items() <= pods.items()
        others = [each for other, each in deployments.items() if other != name]
        for other in others:
            labels = other["spec"]["template"]["metadata"]["labels"]
            assert not service["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (config({"bundles": ["/a/b"], "device": "cpu"}), "cpus_per_replica"),
        (config({"bundles": ["/a/b"], "cpus_per_replica": 1}), "device"),
        (config({**GROUP, "bundles": ["b"]}), "path in the container"),
        (config({**GROUP, "bundles": ["/a/b", "/c"]}, bundles_volume="v"), "no folder in common"),
        (config(SCALED, ON_GPUS), "a pod holds all groups"),
        (config().model_copy(update={"tls": TLS}), "for the proxy or the Ingress"),
        (config().model_copy(update={"access": OPERATORS}), "each pod would be changed by itself"),
    ],
)
def test_what_is_left_open_is_told(server: ServerConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        kubernetes.render(server)


def test_other_targets_do_not_route_by_weight() -> None:
    with pytest.raises(ConfigError, match="cannot route by weight"):
        rayservice.render(config(canary=CANARY))
    with pytest.raises(ConfigError, match="cannot route by weight"):
        rayservice.render(config(GROUP, {**GROUP, "name": "trial", "canary_percent": 5}))


def test_a_cluster_has_the_models_that_its_configuration_says() -> None:
    with pytest.raises(ConfigError, match="what the configuration says"):
        rayservice.render(config().model_copy(update={"access": OPERATORS}))
