"""The chart under Kubernetes' schemas. Helm renders it; where it cannot be had, a stand-in does."""

import json
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from serving.deployments.start_checks import ENDING_SECONDS
from serving.server_config import parse_config, read_config
from serving.version import VERSION
from tests.deploy import go_templates
from tests.deploy.chart_reference import (
    CHART,
    README,
    SCHEMA,
    described_values,
    find_property,
    read_table,
    write_table,
)
from tests.deploy.go_templates import TemplateFailure
from tests.deploy.helm import find_helm
from tests.deploy.rendered import (
    GROUP,
    ON_GPUS,
    ROOT,
    SCALED,
    check,
    check_hardening,
    check_restricted,
    pod_specs,
)
from tests.docs.commands import invocations, parsed
from tests.docs.examples import commands_in
from tests.docs.pages import missing_links, missing_paths, quoted

needs_helm = pytest.mark.usefixtures("helm")

URL = "postgresql://attendant:secret@database.example/attendant?sslmode=verify-full"
MODEL = {"name": "Helsinki-NLP/opus-mt-en-fr", "bundle": "opus-en-fr"}
PROBES = ("startup", "liveness", "readiness")
Objects = dict[tuple[str, str], Any]


def write_server(*groups: Any, **changes: Any) -> str:
    return yaml.safe_dump({"port": 8123, "groups": list(groups), **changes})


# A case for each switch, and one with all that go together.
EVERYTHING: dict[str, Any] = {
    "server": write_server(GROUP, ON_GPUS, drain_seconds=99.5),
    "replicas": 3,
    "image": {"repository": "registry.example/attendant", "tag": "1", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "registry"}],
    "state": {"existingSecret": "database", "secretKey": "uri", "tlsSecret": "database-ca"},
    "keys": {"existingSecret": "keys"},
    "operators": {"existingSecret": "operators", "secretKey": "file"},
    "tls": {"existingSecret": "certificate"},
    "models": {"claim": "models", "pull": [MODEL, {**MODEL, "bundle": "b", "precision": "fp32"}]},
    "gpus": 1,
    "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
    "envFrom": [{"secretRef": {"name": "hub"}}],
    "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    "podLabels": {"team": "language"},
    "podAnnotations": {"example.org/owner": "language"},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
        }
    ],
    "priorityClassName": "serving",
    "runtimeClassName": "nvidia",
    "serviceAccount": {"name": "translator", "annotations": {"example.org/role": "reader"}},
    "service": {"type": "LoadBalancer", "annotations": {"example.org/internal": "true"}},
    "ingress": {
        "enabled": True,
        "className": "nginx",
        "annotations": {"nginx.ingress.kubernetes.io/proxy-body-size": "0"},
        "hosts": [{"host": "mt.example", "paths": [{"path": "/", "pathType": "Prefix"}]}],
        "tls": [{"secretName": "mt-tls", "hosts": ["mt.example"]}],
    },
    "httpRoute": {
        "enabled": True,
        "annotations": {"example.org/team": "language"},
        "parentRefs": [{"name": "public", "namespace": "gateways", "sectionName": "https"}],
        "hostnames": ["mt.example"],
        "rules": [{"timeouts": {"request": "0s"}}],
    },
    "networkPolicy": {"egressPorts": [4318, 443]},
    "serviceMonitor": {
        "enabled": True,
        "labels": {"release": "prometheus"},
        "interval": "5s",
        "authorization": {"credentials": {"name": "metrics-key", "key": "key"}},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Models"}},
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": EVERYTHING,
    "scaled": {"server": write_server(SCALED), "state": {"url": URL}},
    "scaled within a pod": {
        "server": write_server(
            {**GROUP, "autoscaling": {"max_replicas": 1}}, {**GROUP, "name": "b"}
        )
    },
    "a claim for the state": {"state": {"claim": "state"}},
    "models that are fetched": {"models": {"pull": [MODEL], "path": "/opt/models"}},
    "a claim of models": {"models": {"claim": "models"}},
    "a volume of models": {"models": {"volume": {"csi": {"driver": "files.example.org"}}}},
    "other names": {"nameOverride": "mt", "serviceAccount": {"create": False}},
    "one name": {"fullnameOverride": "translator", "networkPolicy": {"enabled": False}},
    "a service account that is there": {"serviceAccount": {"create": False, "name": "reader"}},
    "resources": {"resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}}},
    "large numbers": {"server": write_server(GROUP | {"limits": {"max_characters": 2_000_000}})},
}


@cache
def read_chart() -> go_templates.Chart:
    return go_templates.Chart(CHART)


def parse_objects(text: str) -> Objects:
    manifests = [manifest for manifest in yaml.safe_load_all(text) if manifest]
    objects = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in manifests}
    assert len(objects) == len(manifests)
    return objects


def render_in_python(values: dict[str, Any]) -> Objects:
    files = read_chart().render(values)
    del files["NOTES.txt"]
    return parse_objects("\n---\n".join(files.values()))


def run_helm(*words: object, values: dict[str, Any] | None = None) -> str:
    """Return what Helm prints. Raise TemplateFailure with what it says where it fails."""
    helm = find_helm()
    assert helm
    command = [helm, *map(str, words), *(["--values", "-"] if values is not None else [])]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)
    if done.returncode:
        raise TemplateFailure(done.stderr)
    return done.stdout


def render_by_helm(values: dict[str, Any], folder: Path = CHART) -> Objects:
    return parse_objects(run_helm("template", "attendant", folder, values=values))


def render(values: dict[str, Any]) -> Objects:
    return render_by_helm(values) if find_helm() else render_in_python(values)


@pytest.fixture(scope="session")
def helm() -> None:
    if not find_helm():
        pytest.skip("Helm is not installed, and the package index does not give it")


def find_only(objects: Objects, kind: str) -> Any:
    [manifest] = [manifest for (name, _), manifest in objects.items() if name == kind]
    return manifest


def render_pod(values: dict[str, Any]) -> Any:
    [spec] = pod_specs(find_only(render(values), "Deployment"))
    return spec


def read_configuration(objects: Objects) -> Any:
    return yaml.safe_load(objects["ConfigMap", "attendant"]["data"]["server.yaml"])


@pytest.mark.parametrize("case", CASES)
def test_kubernetes_accepts_every_object_under_the_profile_restricted(case: str) -> None:
    objects = render(CASES[case])
    for manifest in objects.values():
        check(manifest)
    [spec] = pod_specs([*objects.values()])
    check_restricted(spec)
    if "resources" not in CASES[case]:
        check_hardening(spec)


@needs_helm
@pytest.mark.parametrize("case", CASES)
def test_helm_renders_what_the_stand_in_renders(case: str) -> None:
    by_helm, in_python = render_by_helm(CASES[case]), render_in_python(CASES[case])
    for objects in (by_helm, in_python):
        for manifest in objects.values():
            if manifest["kind"] == "ConfigMap" and "server.yaml" in manifest["data"]:
                manifest["data"]["server.yaml"] = yaml.safe_load(manifest["data"]["server.yaml"])
    assert by_helm == in_python


@needs_helm
def test_helm_finds_nothing_to_mend() -> None:
    assert "0 chart(s) failed" in run_helm("lint", CHART, "--strict")


@needs_helm
def test_a_package_renders_the_same_from_its_files_alone(tmp_path: Path) -> None:
    run_helm("package", CHART, "--destination", tmp_path)
    [package] = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        archive.extractall(tmp_path, filter="data")
    assert render_by_helm(EVERYTHING, tmp_path / "attendant") == render_by_helm(EVERYTHING)


def test_every_object_has_the_recommended_labels() -> None:
    metadata = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert metadata["appVersion"] == VERSION
    for manifest in render(EVERYTHING).values():
        assert (
            manifest["metadata"]["labels"].items()
            >= {
                "app.kubernetes.io/name": "attendant",
                "app.kubernetes.io/instance": "attendant",
                "app.kubernetes.io/version": metadata["appVersion"],
                "app.kubernetes.io/managed-by": "Helm",
                "helm.sh/chart": f"attendant-{metadata['version']}",
            }.items()
        )


def test_selectors_find_the_pods() -> None:
    objects = render(EVERYTHING)
    labels = objects["Deployment", "attendant"]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        find_only(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        find_only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        find_only(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        objects["Service", "attendant"]["spec"]["selector"],
        objects["Service", "attendant-operations"]["spec"]["selector"],
        render_pod(EVERYTHING)["topologySpreadConstraints"][0]["labelSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= labels.items() for selector in selectors)
    monitored = find_only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
    services = [manifest for (kind, _), manifest in objects.items() if kind == "Service"]
    [operations] = [
        service
        for service in services
        if monitored.items() <= service["metadata"]["labels"].items()
    ]
    assert operations["metadata"]["name"] == "attendant-operations"


def test_the_defaults_serve_the_models_of_the_image() -> None:
    config = parse_config("the pod", read_configuration(render({})))
    image = read_config(ROOT / "deploy/docker/cpu.yaml")
    [group], [image_group] = config.groups, image.groups
    assert (group.bundles, group.device) == (image_group.bundles, image_group.device)
    assert (config.host, config.port) == (image.host, image.port)


def test_the_deployment_runs_the_configuration() -> None:
    objects = render({"server": write_server(GROUP, ON_GPUS), "gpus": 1})
    [container] = render_pod({"server": write_server(GROUP, ON_GPUS), "gpus": 1})["containers"]
    assert container["resources"]["limits"] == {
        "cpu": "9",
        "memory": "12288Mi",
        "nvidia.com/gpu": "1",
    }
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8123, "operations": 8124}
    assert [port["port"] for port in find_only(objects, "Service")["spec"]["ports"]] == [8123]
    config = parse_config("the pod", read_configuration(objects))
    assert (config.host, config.port, config.operations_port) == ("0.0.0.0", 8123, 8124)
    assert [group.name for group in config.groups] == ["translators", "writers"]


def test_numbers_of_a_configuration_stay_whole() -> None:
    config = parse_config("the pod", read_configuration(render(CASES["large numbers"])))
    assert config.groups[0].limits.max_characters == 2_000_000


def test_probes_ask_the_operations_port() -> None:
    [container] = render_pod({"server": write_server(GROUP, operations_port=9000)})["containers"]
    probes = [container[f"{probe}Probe"]["httpGet"] for probe in PROBES]
    assert [probe["path"] for probe in probes] == ["/health", "/health", "/ready"]
    assert {probe["port"] for probe in probes} == {"operations"}
    assert {"name": "operations", "containerPort": 9000} in container["ports"]


def test_another_configuration_or_database_starts_new_pods() -> None:
    def render_checksums(**values: Any) -> Any:
        metadata = find_only(render(values), "Deployment")["spec"]["template"]["metadata"]
        return {key: text for key, text in metadata["annotations"].items() if "checksum" in key}

    other = {"state": {"url": URL + "&connect_timeout=5"}}
    assert render_checksums(server=write_server(GROUP)) == render_checksums(
        server=write_server(GROUP)
    )
    assert render_checksums(server=write_server(GROUP)) != render_checksums(
        server=write_server({**GROUP, "slots": 8})
    )
    assert render_checksums(state={"url": URL}) != render_checksums(**other)


def test_pods_are_scaled_on_waiting_tokens() -> None:
    objects = render(CASES["scaled"])
    scaler = find_only(objects, "HorizontalPodAutoscaler")["spec"]
    assert (scaler["minReplicas"], scaler["maxReplicas"]) == (2, 5)
    [metric] = scaler["metrics"]
    assert metric["pods"]["metric"]["name"] == "attendant_waiting_tokens"
    assert metric["pods"]["target"]["averageValue"] == "700"
    assert "replicas" not in find_only(objects, "Deployment")["spec"]
    [group] = parse_config("the pod", read_configuration(objects)).groups
    assert group.max_replicas == 1


def test_a_budget_of_disruptions_comes_with_a_second_pod() -> None:
    several = {"replicas": 2, "state": {"url": URL}}
    assert find_only(render(several), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert find_only(render(CASES["scaled"]), "PodDisruptionBudget")
    for values in ({}, CASES["scaled within a pod"]):
        assert "PodDisruptionBudget" not in {kind for kind, _ in render(values)}


def test_the_url_of_the_database_is_in_a_secret_alone() -> None:
    objects = render({"state": {"url": URL}})
    secret = objects.pop(("Secret", "attendant-state"))
    assert secret["stringData"] == {"url": URL}
    assert "secret@" not in json.dumps([*objects.values()])
    [container] = render_pod({"state": {"url": URL}})["containers"]
    [variable] = container["env"]
    assert variable["name"] == "ATTENDANT_STATE"
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "attendant-state", "key": "url"}


def test_files_of_secrets_are_where_the_configuration_names_them() -> None:
    config = parse_config("the pod", read_configuration(render(EVERYTHING)))
    pod = render_pod(EVERYTHING)
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == "config"]
    secrets = [source["secret"] for source in volume["projected"]["sources"][1:]]
    names = {
        item["path"]: (secret["name"], item["key"])
        for secret in secrets
        for item in secret["items"]
    }
    assert names == {
        "keys.json": ("keys", "keys.json"),
        "operators.json": ("operators", "file"),
        "tls.crt": ("certificate", "tls.crt"),
        "tls.key": ("certificate", "tls.key"),
    }
    assert config.tls
    paths = [config.access.keys, config.access.operators, config.tls.certificate, config.tls.key]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert [str(path) for path in paths] == [f"{mounts['config']}/{name}" for name in names]
    [variable, _] = pod["containers"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "database", "key": "uri"}
    [certificates] = [volume for volume in pod["volumes"] if volume["name"] == "state-tls"]
    assert certificates["secret"] == {"secretName": "database-ca", "defaultMode": 0o440}
    assert mounts["state-tls"] == "/etc/attendant-state"


def test_the_state_of_a_single_pod_is_in_a_claim_that_no_second_pod_mounts() -> None:
    deployment = find_only(render(CASES["a claim for the state"]), "Deployment")["spec"]
    assert deployment["replicas"] == 1 and deployment["strategy"] == {"type": "Recreate"}
    [home] = [
        volume
        for volume in deployment["template"]["spec"]["volumes"]
        if volume["name"] == "home-attendant"
    ]
    assert home["persistentVolumeClaim"] == {"claimName": "state"}
    strategies = [find_only(render(v), "Deployment")["spec"]["strategy"] for v in ({}, EVERYTHING)]
    assert strategies[0] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0}}
    assert strategies[1] == EVERYTHING["strategy"]


def test_models_are_fetched_before_the_server_starts(tmp_path: Path) -> None:
    pod = render_pod(CASES["models that are fetched"])
    [container] = pod["initContainers"]
    assert container["args"] == ["/opt/models/opus-en-fr", MODEL["name"], ""]
    assert {"name": "models", "emptyDir": {}} in pod["volumes"]
    # The script runs, with a command in the place of `attendant` that says how it was called.
    program = tmp_path / "attendant"
    bundle = tmp_path / "bundle"
    program.write_text('#!/bin/sh\necho "$@" >> "$0.calls"; mkdir "$4" && touch "$4/bundle.json"\n')
    program.chmod(0o755)
    for precision in ("fp32", "fp32", ""):
        words = [*container["command"], bundle, MODEL["name"], precision]
        if not precision:
            shutil.rmtree(bundle)
        path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        subprocess.run([str(word) for word in words], check=True, env=path)
    first, second = Path(f"{program}.calls").read_text().splitlines()
    assert first == f"pull {MODEL['name']} -o {bundle} --precision fp32"
    assert second == f"pull {MODEL['name']} -o {bundle}"


def test_models_are_mounted_for_reading() -> None:
    for case in ("a claim of models", "a volume of models", "models that are fetched"):
        pod = render_pod(CASES[case])
        [mount] = [
            mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "models"
        ]
        assert mount["readOnly"] is True
    claims = [
        volume["persistentVolumeClaim"]
        for values in (CASES["a claim of models"], EVERYTHING)
        for volume in render_pod(values)["volumes"]
        if volume["name"] == "models"
    ]
    assert [claim["readOnly"] for claim in claims] == [True, False]


def test_a_pod_has_what_values_say_and_time_to_end() -> None:
    pod = render_pod(EVERYTHING)
    [container] = pod["containers"]
    names = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName")
    assert all(pod[name] == EVERYTHING[name] for name in (*names, "runtimeClassName"))
    assert pod["terminationGracePeriodSeconds"] == 100 + ENDING_SECONDS + 5  # of the preStop hook
    assert pod["serviceAccountName"] == "translator"
    assert pod["automountServiceAccountToken"] is False
    assert container["image"] == "registry.example/attendant:1"
    assert container["imagePullPolicy"] == "Always"
    for with_environment in (*pod["initContainers"], container):
        assert with_environment["envFrom"] == EVERYTHING["envFrom"]
        assert EVERYTHING["env"][0] in with_environment["env"]
    assert EVERYTHING["extraVolumes"][0] in pod["volumes"]
    assert EVERYTHING["extraVolumeMounts"][0] in container["volumeMounts"]
    metadata = find_only(render(EVERYTHING), "Deployment")["spec"]["template"]["metadata"]
    assert metadata["labels"]["team"] == "language"
    assert metadata["annotations"]["example.org/owner"] == "language"
    account = find_only(render(EVERYTHING), "ServiceAccount")
    assert account["metadata"]["annotations"] == {"example.org/role": "reader"}
    assert account["automountServiceAccountToken"] is False


def test_the_network_policy_opens_what_is_used() -> None:
    def egress_ports(**values: Any) -> set[int]:
        rules = find_only(render(values), "NetworkPolicy")["spec"]["egress"]
        return {port["port"] for rule in rules for port in rule["ports"]}

    assert egress_ports() == {53}
    assert egress_ports(state={"url": URL}) == {53, 5432}
    assert egress_ports(models={"pull": [MODEL]}, networkPolicy={"egressPorts": [4318]}) == {
        53,
        443,
        4318,
    }
    api, operations = find_only(render({}), "NetworkPolicy")["spec"]["ingress"]
    assert "from" not in api and api["ports"][0]["port"] == 8000
    assert operations["from"] == [{"namespaceSelector": {}}]
    assert operations["ports"][0]["port"] == 8001


def test_prometheus_and_grafana_get_the_shipped_files() -> None:
    objects = render(EVERYTHING)
    rules = yaml.safe_load((CHART / "monitoring/rules.yaml").read_text(encoding="utf-8"))
    assert find_only(objects, "PrometheusRule")["spec"] == rules
    dashboard = objects["ConfigMap", "attendant-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["data"] == {
        "attendant.json": (CHART / "monitoring/dashboard.json").read_text()
    }
    [endpoint] = find_only(objects, "ServiceMonitor")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("operations", "/metrics")
    assert endpoint["authorization"] == EVERYTHING["serviceMonitor"]["authorization"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "attendant"}]
    assert "prometheus.io/scrape" not in json.dumps(find_only(objects, "Deployment"))
    assert "prometheus.io/scrape" in json.dumps(find_only(render({}), "Deployment"))


def test_routes_lead_to_the_service() -> None:
    objects = render(EVERYTHING)
    [path] = find_only(objects, "Ingress")["spec"]["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "attendant", "port": {"name": "http"}}
    [rule] = find_only(objects, "HTTPRoute")["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "attendant", "port": 8123}]
    assert rule["timeouts"] == {"request": "0s"}
    [port] = objects["Service", "attendant"]["spec"]["ports"]
    assert port["appProtocol"] == "https"  # as the case gives the server a certificate


REFUSALS = [
    ({"replicas": 3}, "3 pods need state that they share"),
    ({"server": write_server(SCALED)}, "5 pods need state that they share"),
    ({"replicas": 2, "state": {"claim": "state"}}, "2 pods need state that they share"),
    (
        {"replicas": 2, "server": write_server(SCALED), "state": {"url": URL}},
        "leave one of them out",
    ),
    ({"state": {"url": URL, "existingSecret": "a"}}, "the URL is in one of them"),
    ({"state": {"url": URL, "claim": "a"}}, "the state is in the database"),
    ({"state": {"claim": "a"}, "strategy": {"type": "Recreate"}}, "leave one of them out"),
    ({"state": {"url": "mysql://a:secret@b"}}, "no URL of a PostgreSQL database"),
    ({"server": write_server(GROUP, state=URL)}, "a ConfigMap would hold its password"),
    ({"models": {"claim": "a", "volume": {"emptyDir": {}}}}, "the bundles are in one of them"),
    ({"models": {"pull": [MODEL], "volume": {"emptyDir": {}}}}, "leave models.volume out"),
    ({"server": "port: 8000"}, "no configuration with groups"),
    ({"server": "- a"}, "no configuration with groups"),
]


@pytest.mark.parametrize(("values", "sentence"), REFUSALS)
def test_what_cannot_work_is_refused_in_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TemplateFailure, match=sentence) as failure:
        render(values)
    assert "secret@" not in str(failure.value)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(TemplateFailure) as failure:
        render({"replicas": 2, "models": {"claim": "a", "volume": {"emptyDir": {}}}})
    assert "2 pods need" in str(failure.value) and "models.volume" in str(failure.value)


def read_schema() -> Any:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def nest(name: str, value: Any) -> Any:
    for part in reversed(name.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize("case", CASES)
def test_the_schema_accepts_the_cases(case: str) -> None:
    jsonschema.validate(CASES[case], read_schema())


@pytest.mark.parametrize("name", [value.name for value in described_values()])
def test_the_schema_refuses_a_typing_mistake_and_another_type(name: str) -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    validator = jsonschema.Draft7Validator(read_schema())
    assert validator.is_valid(defaults)
    assert not validator.is_valid(nest(f"{name}s", "x"))
    assert not validator.is_valid(nest(name, 0.5))
    assert validator.is_valid({"global": {}})  # of a chart that has this one as a part


@needs_helm
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"replica": 3}, r"\breplica\b"),
        ({"state": {"claims": "a"}}, r"\bclaims\b"),
        ({"image": "attendant:cpu"}, r"\bimage\b"),
        ({"ingress": {"enabled": True}}, "ingress.hosts"),
        ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs"),
        ({"models": {"pull": [{"name": "bergamot-en-pt", "bundle": "a"}]}}, "models.pull.0.name"),
    ],
)
def test_helm_refuses_what_the_schema_refuses(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(TemplateFailure, match=problem):
        render_by_helm(values)


def test_the_reference_describes_every_value() -> None:
    """`python -m tests.deploy.chart_reference` writes it."""
    assert read_table() == write_table()
    for value in described_values():
        assert find_property(read_schema(), value.name)["description"] == value.description


def test_every_value_is_described_and_used() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    names = [value.name for value in described_values()]
    assert [name for name in names if f".Values.{name}" not in templates] == []
    sections = {name.partition(".")[0] for name in names if "." in name}
    assert sorted(names) == sorted(
        f"{section}.{name}" if section in sections else section
        for section, values in defaults.items()
        for name in (values if section in sections else [section])
    )


PAGES = [CHART / "README.md", ROOT / "docs/deploy.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_of_values_render(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    examples = re.findall(r"<<'VALUES'\n(.*?)^VALUES$", text, re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        for manifest in render(yaml.safe_load(example)).values():
            check(manifest)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_values_that_commands_set_are_there(page: Path) -> None:
    names = {value.name for value in described_values()}
    set_names = re.findall(r"(?:--set(?:-file|-json)? '?|,)([\w.]+)=", page.read_text())
    assert set_names and {*set_names} <= names


def test_the_job_that_moves_state_mounts_what_a_pod_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTENDANT_STATE", URL)
    text = README.read_text(encoding="utf-8")
    [manifest] = re.findall(r"<<'END'\n(.*?)^END$", text, re.DOTALL | re.MULTILINE)
    job = yaml.safe_load(manifest)
    check(job)
    [pod] = pod_specs(job)
    check_restricted(pod)
    [container] = pod["containers"]
    assert parsed(container["args"]).params["target"] == URL
    assert container["args"][-1].startswith("/home/attendant/")  # the default, below its home
    claimed = render_pod(CASES["a claim for the state"])
    [mount] = [
        mount
        for mount in claimed["containers"][0]["volumeMounts"]
        if mount["name"] == "home-attendant"
    ]
    assert mount["mountPath"] in [mount["mountPath"] for mount in container["volumeMounts"]]
    [variable] = render_pod({"state": {"existingSecret": "database"}})["containers"][0]["env"]
    assert container["env"] == [variable]


def test_the_page_of_the_chart_leads_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert [*missing_links(README, text), *missing_paths(text)] == []
    for block in quoted(text, "sh"):
        for command in commands_in(block):
            for words in invocations(command):
                assert parsed(words)


NOTES = {
    "defaults": [
        "rollout status deployment/attendant",
        "port-forward",
        "ends with the pod",
        "keys",
    ],
    "everything": ["curl --insecure https://localhost:8123", "outside mt.example"],
    "a claim for the state": ["kubectl --namespace default create secret generic attendant-keys"],
}


@pytest.mark.parametrize("case", NOTES)
def test_notes_say_the_next_commands(case: str) -> None:
    notes = read_chart().render(CASES[case])["NOTES.txt"]
    assert [line for line in NOTES[case] if line not in notes] == []
    assert ("ends with the pod" in notes) == (case == "defaults")
    assert ("attendant keys create" in notes) == (case != "everything")


@needs_helm
@pytest.mark.parametrize("case", NOTES)
def test_helm_shows_the_same_notes(case: str) -> None:
    if run_helm("version", "--short").startswith("v3"):
        pytest.skip("Helm 3 asks a cluster before it shows notes")
    shown = run_helm("install", "attendant", CHART, "--dry-run=client", values=CASES[case])
    assert (
        shown.partition("NOTES:\n")[2].strip()
        == read_chart().render(CASES[case])["NOTES.txt"].strip()
    )


def test_a_wrong_object_is_found() -> None:
    deployment = find_only(render({}), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    with pytest.raises(kubernetes_validate.ValidationError):
        check(deployment)
    monitor = find_only(render(EVERYTHING), "ServiceMonitor")
    monitor["spec"]["endpoint"] = []
    with pytest.raises(jsonschema.ValidationError):
        check(monitor)
