"""The RayService, as far as it can be checked without a cluster: it runs what the image runs."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.serve.schema import ServeDeploySchema

from serving.server_config import ServerConfig, WorkerGroup, read_config

ROOT = Path(__file__).parents[2]
PORT = ServerConfig.model_fields["port"].default


@pytest.fixture(scope="module")
def spec() -> Any:
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/rayservice.yaml").read_text())
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", "RayService")
    return manifest["spec"]


def containers(spec: Any) -> list[Any]:
    cluster = spec["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for group in groups for container in group["template"]["spec"]["containers"]]


def test_ray_serve_accepts_the_configuration(spec: Any) -> None:
    config = ServeDeploySchema.model_validate(yaml.safe_load(spec["serveConfigV2"]))
    assert config.http_options.port == PORT
    (application,) = config.applications
    module, _, function = application.import_path.partition(":")
    assert callable(getattr(import_module(module), function))


def test_it_serves_the_worker_group_of_the_image(spec: Any) -> None:
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    group = WorkerGroup.model_validate(application["args"])
    (image_group,) = read_config(ROOT / "deploy/docker/cpu.yaml").groups
    assert group.bundles == image_group.bundles
    assert group.device == image_group.device
    assert application["name"] == group.name


def test_a_worker_has_the_cpus_a_replica_asks_for(spec: Any) -> None:
    (application,) = yaml.safe_load(spec["serveConfigV2"])["applications"]
    (worker,) = containers(spec)[1:]
    assert worker["resources"]["limits"]["cpu"] == str(application["args"]["cpus_per_replica"])


def test_every_pod_routes_through_haproxy_on_the_servers_port(spec: Any) -> None:
    for container in containers(spec):
        environment = {entry["name"]: entry["value"] for entry in container["env"]}
        assert environment["RAY_SERVE_ENABLE_HA_PROXY"] == "1"
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["serve"] == PORT


def test_a_worker_is_ready_when_proxy_and_models_are(spec: Any) -> None:
    (worker,) = containers(spec)[1:]
    probe = " ".join(worker["readinessProbe"]["exec"]["command"])
    assert f"http://localhost:{PORT}/-/healthz" in probe
    assert f"http://localhost:{PORT}/ready" in probe


def test_it_names_the_installed_ray(spec: Any) -> None:
    assert spec["rayClusterConfig"]["rayVersion"] == ray.__version__
