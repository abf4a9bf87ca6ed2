"""The chart, under Kubernetes' own schemas. Without Helm a stand-in renders its expressions."""

import hashlib
import json
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from serving.server_config import parse_config
from tests.deploy.rendered import (
    GROUP,
    ON_GPUS,
    ROOT,
    SCALED,
    check,
    check_hardening,
    documents,
    pod_specs,
)

CHART = ROOT / "deploy/helm"
TEMPLATE = (CHART / "templates/attendant.yaml").read_text()
PREAMBLE, _, OBJECTS = TEMPLATE.partition("---\n")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
BLOCK = re.compile(r"^ *\{\{- if (.*?) \}\}\n(.*?)^ *\{\{- end \}\}\n", re.DOTALL | re.MULTILINE)
CLAIM = {"bundlesClaim": "models", "stateClaim": "state", "gpus": 1}


ASKED = {
    "imagePullPolicy": "Always",
    "imagePullSecrets": [{"name": "registry"}],
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "nodeSelector": {"pool": "cpu"},
    "collectorPort": 4318,
}


def server(*groups: Any, **changes: Any) -> str:
    return yaml.safe_dump({"port": 8123, "groups": list(groups), **changes})


def rendered(text: str, **values: Any) -> dict[str, Any]:
    """Return the objects of the chart: what Helm makes of them, evaluated in Python."""
    values = {**VALUES, **values}
    configuration = yaml.safe_load(text)
    groups = configuration["groups"]
    scaling = groups[0].get("autoscaling")
    counts = [1 if "autoscaling" in each else each.get("replicas", 1) for each in groups]
    cpus = sum(g.get("cpus_per_replica", 1) * n for g, n in zip(groups, counts, strict=True))
    for group in groups:
        group.pop("autoscaling", None)
    inside = yaml.safe_dump(configuration | {"host": "0.0.0.0"})
    results: dict[str, Any] = {
        ".Release.Name": "attendant",
        ".Release.Name | quote": "attendant",
        "$server | toYaml | quote": json.dumps(inside),
        "$port": configuration.get("port", 8000),
        "$port | quote": json.dumps(str(configuration.get("port", 8000))),
        "$cpus | quote": json.dumps(str(cpus)),
        "$grace": math.ceil(configuration.get("drain_seconds", 30)) + 30,
        "$scaling": scaling,
        "not $scaling": not scaling,
        "not .Values.stateClaim": not values["stateClaim"],
        ".Values.server | sha256sum | quote": hashlib.sha256(text.encode()).hexdigest(),
        "mul $replicas (int .Values.memoryMiB)": sum(counts) * values["memoryMiB"],
        **{f".Values.{name}": value for name, value in values.items()},
        **{f".Values.{name} | quote": json.dumps(str(value)) for name, value in values.items()},
        **{f".Values.{name} | toJson": json.dumps(value) for name, value in values.items()},
    }
    if scaling:
        results |= {
            "$scaling.min_replicas | default 1 | int": scaling.get("min_replicas", 1),
            "int $scaling.max_replicas": scaling["max_replicas"],
            "$scaling.queued_tokens | default 2000 | int | quote": json.dumps(
                str(scaling.get("queued_tokens", 2000))
            ),
        }
    kept = BLOCK.sub(lambda block: block[2] if results[block[1]] else "", OBJECTS)
    return documents(re.sub(r"\{\{ (.*?) \}\}", lambda m: str(results[m[1]]), kept))


PROBES = ("startup", "liveness", "readiness")
CASES = {
    "one group": (server(GROUP), {}),
    "two groups, one on GPUs": (server(GROUP, ON_GPUS), CLAIM),
    "scaled": (server(SCALED), {}),
    "with all values": (server(GROUP), ASKED),
}


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_accepts_every_object(case: str) -> None:
    text, values = CASES[case]
    objects = rendered(text, **values)
    for manifest in objects.values():
        check(manifest)
    assert len(objects) == 5 + (case == "scaled")
    check_hardening(objects["Deployment"]["spec"]["template"]["spec"])


@pytest.mark.parametrize("claim", ["", "state"])
def test_what_is_kept_is_in_a_claim_if_there_is_one(claim: str) -> None:
    pod = rendered(server(GROUP), stateClaim=claim)["Deployment"]["spec"]["template"]["spec"]
    [home] = [volume for volume in pod["volumes"] if volume["name"] == "home-attendant"]
    kept = {"persistentVolumeClaim": {"claimName": "state"}} if claim else {"emptyDir": {}}
    assert home == {"name": "home-attendant", **kept}


@pytest.mark.skipif(not shutil.which("helm"), reason="Helm is not installed")
@pytest.mark.parametrize("case", CASES)
def test_helm_renders_the_same(case: str, tmp_path: Path) -> None:
    text, values = CASES[case]
    (tmp_path / "server.yaml").write_text(text)
    options = ["--set-file", f"server={tmp_path / 'server.yaml'}"]
    for name, value in values.items():
        options += ["--set-json", f"{name}={json.dumps(value)}"]
    command = ["helm", "template", "attendant", str(CHART), *options]
    made = documents(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    expected = rendered(text, **values)
    for objects in (made, expected):
        data = objects["ConfigMap"]["data"]
        data["server.yaml"] = yaml.safe_load(data["server.yaml"])
    assert made == expected


def test_a_wrong_object_is_found() -> None:
    deployment = rendered(server(GROUP))["Deployment"]
    deployment["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment)


def test_every_value_is_used() -> None:
    assert {*re.findall(r"\.Values\.(\w+)", TEMPLATE)} == {*VALUES}
    assert "required" in PREAMBLE


def test_the_deployment_runs_the_configuration() -> None:
    objects = rendered(server(GROUP, ON_GPUS), **CLAIM)
    spec = objects["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    limits = {"cpu": "9", "memory": "12288Mi", "nvidia.com/gpu": 1}
    assert {**container["resources"]["limits"], "nvidia.com/gpu": 1} == limits
    assert container["ports"] == [{"name": "http", "containerPort": 8123}]
    assert objects["Service"]["spec"]["ports"][0]["port"] == 8123
    mounted = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounted["/bundles"]["readOnly"] is True
    assert spec["automountServiceAccountToken"] is False
    paths = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in PROBES]
    assert paths == ["/health", "/health", "/ready"]
    (text,) = objects["ConfigMap"]["data"].values()
    inside = parse_config("the pod", yaml.safe_load(text))
    assert (inside.host, inside.port) == ("0.0.0.0", 8123)
    assert [group.name for group in inside.groups] == ["translators", "writers"]


def test_pods_start_anew_when_the_configuration_changes() -> None:
    found = {
        rendered(text)["Deployment"]["spec"]["template"]["metadata"]["annotations"][
            "attendant/configuration"
        ]
        for text in (server(GROUP), server(GROUP), server({**GROUP, "slots": 8}))
    }
    assert len(found) == 2


def test_pods_are_scaled_on_waiting_tokens() -> None:
    objects = rendered(server(SCALED))
    scaler = objects["HorizontalPodAutoscaler"]["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 5)
    (metric,) = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "attendant_waiting_tokens"
    assert metric["pods"]["target"]["averageValue"] == "700"
    assert "replicas" not in objects["Deployment"]["spec"]
    (text,) = objects["ConfigMap"]["data"].values()
    (inside,) = parse_config("the pod", yaml.safe_load(text)).groups
    assert inside.max_replicas == 1


def test_a_pod_has_what_values_say_and_time_to_end() -> None:
    objects = rendered(server(GROUP, drain_seconds=99.5), **ASKED)
    [pod] = pod_specs(objects["Deployment"])
    [container] = pod["containers"]

    assert pod["terminationGracePeriodSeconds"] == 130
    assert pod["nodeSelector"] == ASKED["nodeSelector"]
    assert pod["imagePullSecrets"] == ASKED["imagePullSecrets"]
    assert container["imagePullPolicy"] == "Always" and container["env"] == ASKED["env"]
    collector = {"ports": [{"protocol": "TCP", "port": 4318}]}
    assert collector in objects["NetworkPolicy"]["spec"]["egress"]
    assert collector not in rendered(server(GROUP))["NetworkPolicy"]["spec"]["egress"]
