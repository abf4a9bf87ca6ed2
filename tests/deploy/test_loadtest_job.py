"""The load test's Job, as far as it can be checked without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtest.cli import loadtest
from serving.server_config import parse_file
from tests.deploy.rendered import check, check_restricted

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"


@pytest.fixture(scope="module")
def claim_and_job() -> tuple[Any, Any]:
    claim, job = yaml.safe_load_all((FOLDER / "loadtest.yaml").read_text())
    return claim, job


def pod_of(job: Any) -> Any:
    return job["spec"]["template"]["spec"]


def test_the_command_takes_its_arguments(claim_and_job: tuple[Any, Any]) -> None:
    (container,) = pod_of(claim_and_job[1])["containers"]
    assert container["command"] == ["attendant", "loadtest"]
    context = loadtest.make_context("loadtest", list(container["args"]))
    assert context.params["url"].startswith("http://")
    assert context.params["rate"] == 20


def test_it_asks_the_service_of_the_rayservice(claim_and_job: tuple[Any, Any]) -> None:
    """KubeRay names the service after the RayService."""
    (container,) = pod_of(claim_and_job[1])["containers"]
    server = parse_file(FOLDER / "server.yaml")
    service = next(yaml.safe_load_all((FOLDER / "rayservice.yaml").read_text()))
    name = service["metadata"]["name"]
    assert container["args"][0] == f"http://{name}-serve-svc:{server.port}"


def test_what_it_writes_lies_on_its_volume(claim_and_job: tuple[Any, Any]) -> None:
    claim, job = claim_and_job
    pod = pod_of(job)
    (container,) = pod["containers"]
    [volume] = [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    [mount] = [mount for mount in container["volumeMounts"] if mount["name"] == volume["name"]]
    paths = [each.partition("=")[2] for each in container["args"] if "/results" in each]
    assert len(paths) == 2
    assert all(path.startswith(mount["mountPath"] + "/") for path in paths)


def test_kubernetes_accepts_it_under_the_profile_restricted(claim_and_job: tuple[Any, Any]) -> None:
    for manifest in claim_and_job:
        check(manifest)
    pod = pod_of(claim_and_job[1])
    check_restricted(pod)
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_failed_assertion_ends_the_job(claim_and_job: tuple[Any, Any]) -> None:
    job = claim_and_job[1]["spec"]
    assert job["backoffLimit"] == 0
    assert job["template"]["spec"]["restartPolicy"] == "Never"
