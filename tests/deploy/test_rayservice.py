"""The RayService, as far as it can be checked without a cluster: it runs what the image runs."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.serve.schema import ServeDeploySchema

from deploy.rendering import rayservice
from deploy.rendering.ray import serve_config
from serving.server_config import WorkerGroup, parse_config, parse_file, read_config
from tests.deploy.rendered import GROUP, ON_GPUS, ROOT, SCALED, config, documents

FOLDER = ROOT / "deploy/kubernetes"


@pytest.fixture(scope="module")
def spec() -> Any:
    manifest = documents(rayservice.render(config(SCALED, ON_GPUS))["rayservice.yaml"])
    assert manifest["RayService"]["apiVersion"] == "ray.io/v1"
    return manifest["RayService"]["spec"]


def containers(spec: Any) -> list[Any]:
    cluster = spec["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_the_shipped_one_is_what_its_configuration_renders() -> None:
    (text,) = rayservice.render(parse_file(FOLDER / "server.yaml")).values()
    assert (FOLDER / "rayservice.yaml").read_text() == text


def test_the_shipped_one_serves_the_models_of_the_image() -> None:
    (group,) = parse_file(FOLDER / "server.yaml").groups
    (image_group,) = read_config(ROOT / "deploy/docker/cpu.yaml").groups
    assert (group.bundles, group.device) == (image_group.bundles, image_group.device)


def test_ray_serve_accepts_the_configuration(spec: Any) -> None:
    accepted = ServeDeploySchema.model_validate(yaml.safe_load(spec["serveConfigV2"]))
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
    access = {"keys": "/etc/attendant/keys"}
    server = parse_config("the test", {"access": access, "groups": [GROUP, ON_GPUS]})
    applications = serve_config(server)["applications"]
    assert [WorkerGroup(**each["args"]).access.keys for each in applications] == [
        Path("/etc/attendant/keys")
    ] * 2


def test_workers_have_what_replicas_ask_for(spec: Any) -> None:
    scaled, on_gpus = spec["rayClusterConfig"]["workerGroupSpecs"]
    assert (scaled["minReplicas"], scaled["maxReplicas"]) == (2, 5)
    assert (on_gpus["minReplicas"], on_gpus["maxReplicas"]) == (2, 2)
    limits = [each["resources"]["limits"] for each in containers(spec)[1:]]
    assert limits == [
        {"cpu": "3", "memory": "3000Mi"},
        {"cpu": "3", "memory": "3000Mi", "nvidia.com/gpu": "1"},
    ]


def test_ray_grows_only_where_a_group_does(spec: Any) -> None:
    assert spec["rayClusterConfig"]["enableInTreeAutoscaling"] is True
    fixed = documents(rayservice.render(config(GROUP))["rayservice.yaml"])["RayService"]["spec"]
    assert "enableInTreeAutoscaling" not in fixed["rayClusterConfig"]


def test_every_pod_routes_through_haproxy_on_the_servers_port(spec: Any) -> None:
    for container in containers(spec):
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["serve"] == 8123


def test_a_worker_is_ready_when_proxy_and_models_are(spec: Any) -> None:
    for worker in containers(spec)[1:]:
        probe = " ".join(worker["readinessProbe"]["exec"]["command"])
        assert "http://localhost:8123/-/healthz" in probe
        assert "http://localhost:8123/ready" in probe


def test_ray_asks_for_a_token_and_only_the_operator_reaches_the_dashboard(spec: Any) -> None:
    assert spec["rayClusterConfig"]["authOptions"] == {"mode": "token"}
    policy = documents(rayservice.render(config())["rayservice.yaml"])["NetworkPolicy"]["spec"]
    open_to_all = [rule for rule in policy["ingress"] if "from" not in rule]
    assert [rule["ports"] for rule in open_to_all] == [[{"protocol": "TCP", "port": 8123}]]
    (dashboard,) = [
        rule for rule in policy["ingress"] if rule.get("ports", [{}])[0].get("port") == 8265
    ]
    (peer,) = dashboard["from"]
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    pods = spec["rayClusterConfig"]["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()


def test_it_names_the_installed_ray(spec: Any) -> None:
    assert spec["rayClusterConfig"]["rayVersion"] == ray.__version__
