"""`attendant deploy apply`, against a script of Ray Serve's REST API."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from deploy import ray as applying
from deploy.command import deploy
from deploy.ray import DEPLOYMENT, serve_config, surging
from serving.deployments import forwarding
from serving.errors import AttendantError
from serving.server_config import parse_file
from tests.deploy.rendered import GROUP
from tests.deploy.scripted import scripted

PATH = "/api/serve/applications/"


def status(name: str, message: str = "", cause: str = "") -> tuple[int, Any]:
    deployments = {"attendant": {"message": cause}}
    application = {"status": name, "message": message, "deployments": deployments}
    return 200, {"applications": {"translators": application}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "_POLL_SECONDS", 0.01)


@pytest.fixture
def server_file(tmp_path: Path) -> Path:
    path = tmp_path / "server.yaml"
    path.write_text(yaml.safe_dump({"groups": [GROUP]}))
    return path


def call(path: Path, url: str, *more: str) -> str:
    lines: list[str] = []
    parameters = {"lines": lines}
    context = deploy.make_context("deploy", ["apply", url, "-c", str(path), *more])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("click.echo", parameters["lines"].append)
        deploy.invoke(context)
    return "\n".join(lines)


def test_it_returns_when_all_groups_run(server_file: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    answers = {
        f"PUT {PATH}": [(200, "")],
        f"GET {PATH}": [status("DEPLOYING"), status("DEPLOYING"), status("RUNNING")],
    }
    with scripted(answers) as ray:
        told = call(server_file, ray.url, "--token-file", str(tmp_path / "token"))
    assert told == "translators: deploying\ntranslators: running"
    method, _, body, token = ray.asked[0]
    assert (method, body) == ("PUT", surging(serve_config(parse_file(server_file))))
    assert {each[3] for each in ray.asked} == {token} == {"Bearer secret"}


def test_the_configuration_of_ray_serve_is_printed(server_file: Path) -> None:
    done = CliRunner().invoke(deploy, ["serve-config", "-c", str(server_file)])
    assert yaml.safe_load(done.output) == serve_config(parse_file(server_file))


def test_new_replicas_come_first_unless_there_is_no_room(server_file: Path) -> None:
    running = {f"PUT {PATH}": [(200, "")], f"GET {PATH}": [status("RUNNING")]}
    bodies = []
    for options in ((), ("--in-place",)):
        with scripted(running) as ray:
            call(server_file, ray.url, *options)
        bodies.append(ray.asked[0][2])
    first, in_place = (body["applications"][0] for body in bodies)
    assert first["deployments"] == [{"name": forwarding.DEPLOYMENT, "max_surge_percent": 1}]
    assert DEPLOYMENT == forwarding.DEPLOYMENT
    assert "deployments" not in in_place


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ({}, "404"),
        ({f"PUT {PATH}": [(400, "bad group")]}, "bad group"),
        ({f"PUT {PATH}": [(401, "no token")]}, "401"),
        (
            {f"PUT {PATH}": [(200, "")], f"GET {PATH}": [status("DEPLOY_FAILED", "no bundle")]},
            "group translators: no bundle",
        ),
        (
            {
                f"PUT {PATH}": [(200, "")],
                f"GET {PATH}": [status("DEPLOY_FAILED", "it failed", "Traceback\n  no bundle\n")],
            },
            "group translators: no bundle",
        ),
        (
            {f"PUT {PATH}": [(200, "")], f"GET {PATH}": [status("DEPLOYING", "", "no CPU")]},
            "not all groups run after 0 s; group translators: no CPU",
        ),
    ],
)
def test_what_fails_is_told(server_file: Path, answers: Any, problem: str) -> None:
    with scripted(answers) as ray, pytest.raises(AttendantError, match=problem):
        call(server_file, ray.url, "--timeout", "0.2")
