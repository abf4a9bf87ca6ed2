"""The RayService, as far as it can be checked without a cluster: it runs what the image runs."""

import os
import shlex
import subprocess
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
    pod_specs,
)
from tests.serving.deployments.deploy_page import blocks_below

FOLDER = ROOT / "deploy/kubernetes"
OBJECTS = [*yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text())]


def object_of(kind: str, name: str = "attendant") -> Any:
    """Return the object of a kind and a name."""
    (found,) = [
        item for item in OBJECTS if (item["kind"], item["metadata"]["name"]) == (kind, name)
    ]
    return found


SPEC = object_of("RayService")["spec"]
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
    specs = list(pod_specs(object_of("RayService")))
    assert len(specs) == 1 + len(SERVER.groups)
    for spec in specs:
        check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec})
        check_hardening(spec)
    assert all(spec["automountServiceAccountToken"] is False for spec in specs[1:])
    for item in OBJECTS:
        if item["kind"] != "RayService":  # its schema is KubeRay's
            check(item)


def test_every_pod_routes_through_haproxy_on_the_servers_port() -> None:
    for container in containers():
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
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
    policy = object_of("NetworkPolicy")["spec"]
    open_to_all = [rule for rule in policy["ingress"] if "from" not in rule]
    assert [rule["ports"] for rule in open_to_all] == [[{"protocol": "TCP", "port": SERVER.port}]]
    (dashboard,) = [
        rule for rule in policy["ingress"] if rule.get("ports", [{}])[0].get("port") == 8265
    ]
    (peer,) = dashboard["from"]
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "kuberay-operator"}
    pods = CLUSTER["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= pods.items()


def test_the_head_finds_what_it_knew_in_redis() -> None:
    options = CLUSTER["gcsFaultToleranceOptions"]
    service, redis = (
        object_of("Service", "attendant-redis"),
        object_of("StatefulSet", "attendant-redis"),
    )
    (port,) = service["spec"]["ports"]
    assert options["redisAddress"] == f"{service['metadata']['name']}:{port['port']}"
    assert service["spec"]["selector"] == redis["spec"]["selector"]["matchLabels"]
    assert service["spec"]["selector"] == redis["spec"]["template"]["metadata"]["labels"]
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    (password,) = container["env"]
    assert options["redisPassword"]["valueFrom"] == password["valueFrom"]
    assert "--appendonly yes" in container["command"][-1]


def test_the_password_of_redis_is_in_no_command_line(tmp_path: Path) -> None:
    """The container's script gives it to Redis by a pipe."""
    program = tmp_path / "redis-server"
    program.write_text('#!/bin/sh\ncat; echo "$*"\n')
    program.chmod(0o755)
    redis = object_of("StatefulSet", "attendant-redis")
    (container,) = redis["spec"]["template"]["spec"]["containers"]
    done = subprocess.run(
        container["command"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": "secret"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "requirepass secret\n- --dir /data --appendonly yes\n"


def test_every_worker_has_the_state_of_a_secret() -> None:
    """The Secret is the one that the manifest's first lines make."""
    for worker in containers()[1:]:
        (state,) = [entry for entry in worker["env"] if entry["name"] == "ATTENDANT_STATE"]
        secret = state["valueFrom"]["secretKeyRef"]
        redis = CLUSTER["gcsFaultToleranceOptions"]["redisPassword"]["valueFrom"]["secretKeyRef"]
        assert secret["name"] == redis["name"]
        text = (FOLDER / "rayservice.yaml").read_text()
        assert f"kubectl create secret generic {secret['name']} " in text
        for key in (secret["key"], redis["key"]):
            assert f"--from-literal={key}=" in text


def test_the_pods_may_reach_redis_and_postgresql() -> None:
    rules = object_of("NetworkPolicy")["spec"]["egress"]
    ports = [port["port"] for rule in rules for port in rule.get("ports", [])]
    assert {5432, 6379} <= {*ports}
    (rule,) = [rule for rule in rules if rule.get("ports", [{}])[0].get("port") == 6379]
    (peer,) = rule["to"]
    labels = object_of("StatefulSet", "attendant-redis")["spec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"] == labels
    (ingress,) = object_of("NetworkPolicy", "attendant-redis")["spec"]["ingress"]
    (peer,) = ingress["from"]
    pods = CLUSTER["headGroupSpec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"] == pods


def test_haproxy_gives_up_a_node_that_is_away_after_the_deadline_of_requests() -> None:
    """Its connections to a machine without power stay open: nobody closes them."""
    for container in containers():
        environment = {entry["name"]: entry.get("value") for entry in container["env"]}
        seconds = float(environment["RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S"])
        assert all(group.timeout_seconds < seconds for group in SERVER.groups)


def test_the_page_starts_nodes_with_the_same_variables() -> None:
    """Beside what KubeRay sets: the token, and how long workers wait for a head."""
    (block,) = [text for text in blocks_below("The same with Ray") if "<<'END'" in text]
    words = shlex.split(block.partition("<<'END'\n")[2].rpartition("END")[0])
    of_page = dict(word.split("=", 1) for word in words)
    for container in containers():
        values = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
        assert values.items() <= of_page.items()
        assert {entry["name"] for entry in container["env"]} <= {*of_page}


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


@pytest.mark.parametrize("state", ["/state", "postgresql://u@h/d?sslmode=require"])
def test_every_application_has_the_state_of_the_server(state: str) -> None:
    applications = serve_config(config(GROUP, ON_GPUS, state=state))["applications"]
    assert [WorkerGroup(**application["args"]).state for application in applications] == [state] * 2


@pytest.mark.parametrize(
    ("server", "problem"),
    [
        (config({"bundles": ["/a/b"], "device": "cpu"}), "cpus_per_replica"),
        (config({"bundles": ["/a/b"], "cpus_per_replica": 1}), "device"),
        (config({**GROUP, "bundles": ["b"]}), "path in the container"),
        (config(GROUP, {**GROUP, "name": "trial", "canary_percent": 5}), "route by weight"),
        (config(tls={"certificate": "/c.pem", "key": "/k.pem"}), "has the certificate"),
        (config(state="postgresql://u:hunter2@h/d"), "would show the password: .* ATTENDANT_STATE"),
        (config(state="postgresql://u@h/d?password=hunter2"), "would show the password"),
        (config(access={"operators": "/o.json"}), "the models of its configuration"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused(server: ServerConfig, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        serve_config(server)
