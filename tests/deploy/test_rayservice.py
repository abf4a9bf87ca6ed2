"""The RayService, as far as it can be checked without a cluster: it runs what the image runs."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.serve.schema import ServeDeploySchema

from deploy.ray import serve_config
from serving.errors import ConfigError
from serving.server_config import ServerConfig, WorkerGroup, parse_file, read_config
from tests.deploy.rendered import (
    GROUP,
    ON_GPUS,
    ROOT,
    SCALED,
    check,
    check_hardening,
    config,
    documents,
    pod_specs,
)

FOLDER = ROOT / "deploy/kubernetes"
OBJECTS = documents((FOLDER / "rayservice.yaml").read_text())
SPEC = OBJECTS["RayService"]["spec"]
CLUSTER = SPEC["rayClusterConfig"]
SERVER = parse_file(FOLDER / "server.yaml")


def containers() -> list[Any]:
    groups = [CLUSTER["headGroupSpec"], *CLUSTER["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_it_deploys_its_configuration() -> None:
    assert yaml.safe_load(SPEC["serveConfigV2"]) == serve_config(SERVER)


def test_its_workers_have_what_replicas_need() -> None:
    assert [each["groupName"] for each in CLUSTER["workerGroupSpecs"]] == [
        group.name for group in SERVER.groups
    ]
    for workers, group in zip(CLUSTER["workerGroupSpecs"], SERVER.groups, strict=True):
        assert group.autoscaling is not None
        assert workers["minReplicas"] == workers["replicas"] == group.autoscaling.min_replicas
        assert workers["maxReplicas"] == group.max_replicas
        (container,) = workers["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["cpu"] == str(group.cpus_per_replica)
    assert CLUSTER["enableInTreeAutoscaling"] is True


def test_it_serves_the_models_of_the_image() -> None:
    (group,), (image_group,) = (
        SERVER.groups,
        read_config(ROOT / "deploy/docker/cpu.yaml").groups,
    )
    assert (group.bundles, group.device) == (image_group.bundles, image_group.device)


def test_kubernetes_accepts_its_pods_and_its_policy() -> None:
    found = list(pod_specs(OBJECTS["RayService"]))
    assert len(found) == 1 + len(SERVER.groups)
    for spec in found:
        check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        check_hardening(spec)
    assert all(spec["automountServiceAccountToken"] is False for spec in found[1:])
    check(OBJECTS["NetworkPolicy"])


def test_every_pod_routes_through_haproxy_on_the_servers_port() -> None:
    for container in containers():
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["serve"] == SERVER.port


def test_a_worker_is_ready_when_proxy_and_models_are() -> None:
    for worker in containers()[1:]:
        probe = " ".join(worker["readinessProbe"]["exec"]["command"])
        assert f"http://localhost:{SERVER.port}/-/healthz" in probe
        assert f"http://localhost:{SERVER.port}/ready" in probe


def test_ray_asks_for_a_token_and_only_the_operator_reaches_the_dashboard() -> None:
    assert CLUSTER["authOptions"] == {"mode": "token"}
    policy = OBJECTS["NetworkPolicy"]["spec"]
    open_to_all = [rule for rule in policy["ingress"] if "from" not in rule]
    assert [rule["ports"] for rule in open_to_all] == [[{"protocol": "TCP", "port": SERVER.port}]]
    (dashboard,) = [
        rule for rule in policy["ingress"] if rule.get("ports", [{}])[0].get("port") == 8265
    ]
    (peer,) = dashboard["from"]
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    pods = CLUSTER["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()


def test_it_names_the_installed_ray() -> None:
    assert CLUSTER["rayVersion"] == ray.__version__


def test_ray_serve_accepts_a_configuration() -> None:
    accepted = ServeDeploySchema.model_validate(serve_config(config(SCALED, ON_GPUS)))
    assert accepted.http_options.port == 8123
    assert [each.route_prefix for each in accepted.applications] == ["/", "/groups/writers"]
    for application in accepted.applications:
        module, _, function = application.import_path.partition(":")
        assert callable(getattr(import_module(module), function))


def test_every_application_is_its_worker_group() -> None:
    server = config(SCALED, ON_GPUS)
    applications = yaml.safe_load(yaml.safe_dump(serve_config(server)))["applications"]
    groups = [WorkerGroup.model_validate(each["args"]) for each in applications]
    assert tuple(groups) == server.groups
    assert [each["name"] for each in applications] == [group.name for group in groups]


def test_every_application_asks_for_keys_where_the_server_does() -> None:
    applications = serve_config(config(GROUP, ON_GPUS, access={"keys": "/etc/attendant/keys"}))
    found = [WorkerGroup(**each["args"]).access.keys for each in applications["applications"]]
    assert found == [Path("/etc/attendant/keys")] * 2


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (config({"bundles": ["/a/b"], "device": "cpu"}), "cpus_per_replica"),
        (config({"bundles": ["/a/b"], "cpus_per_replica": 1}), "device"),
        (config({**GROUP, "bundles": ["b"]}), "path in the container"),
        (config(GROUP, {**GROUP, "name": "trial", "canary_percent": 5}), "route by weight"),
        (config(tls={"certificate": "/c.pem", "key": "/k.pem"}), "has the certificate"),
        (config(access={"operators": "/o.json"}), "the models of its configuration"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(server: ServerConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        serve_config(server)
