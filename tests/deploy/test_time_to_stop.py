"""Whoever stops the server waits until it has drained, in everything that is shipped."""

import configparser
import re
from typing import Any

import pytest
import yaml

from serving.deployments.start_checks import ENDING_SECONDS, STOP_SECONDS, problems_of
from serving.server_config import ServerConfig, WorkerGroup
from tests.deploy.rendered import ROOT, documents
from tests.docs.pages import quoted

NEEDED = ServerConfig.model_fields["drain_seconds"].default + ENDING_SECONDS
DEPLOY = ROOT / "deploy"


def compose() -> list[int]:
    text = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", (DEPLOY / "compose.yaml").read_text())
    service = yaml.safe_load(text)["services"]["attendant"]
    return [int(service["stop_grace_period"].removesuffix("s")), *told(service["environment"])]


def systemd() -> list[int]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    text = (DEPLOY / "systemd/attendant.service").read_text()
    unit.read_string(text)
    return [
        int(unit["Service"]["TimeoutStopSec"]),
        *map(int, re.findall(rf"{STOP_SECONDS}=(\d+)", text)),
    ]


def told(environment: dict[str, Any]) -> list[int]:
    return [int(environment[STOP_SECONDS])]


def ray_service() -> list[int]:
    [service] = [
        each
        for each in documents((DEPLOY / "kubernetes/rayservice.yaml").read_text()).values()
        if each["kind"] == "RayService"
    ]
    cluster = service["spec"]["rayClusterConfig"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [each["template"]["spec"]["terminationGracePeriodSeconds"] for each in groups]


def docs() -> list[int]:
    commands = "".join(quoted((ROOT / "docs/deploy.md").read_text(encoding="utf-8"), "sh"))
    assert len(re.findall("docker run", commands)) == commands.count("--stop-timeout")
    return [int(seconds) for seconds in re.findall(r"--stop-timeout (\d+)", commands)]


@pytest.mark.parametrize("place", [compose, systemd, ray_service, docs])
def test_there_is_time_to_drain(place: Any) -> None:
    seconds = place()
    assert seconds and min(seconds) >= NEEDED
    assert len({*seconds}) == 1  # and the server is told the same


@pytest.mark.parametrize(
    ("drain_seconds", "told", "problem"),
    [
        (30, "", None),
        (30, "60", None),
        (300, "", None),
        (30, "59", "drain_seconds: 30 needs 60 s to stop, but who stops this server waits for 59"),
        (300.5, "60", "drain_seconds: 300.5 needs 331 s to stop"),
        (30, "1m", "ATTENDANT_STOP_SECONDS: 1m is no number of seconds"),
    ],
)
def test_a_drain_that_would_be_cut_is_refused(
    drain_seconds: float, told: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STOP_SECONDS, told)
    group = WorkerGroup.model_construct(bundles=(), canary_percent=None)
    problems = problems_of(
        ServerConfig.model_construct(drain_seconds=drain_seconds, groups=(group,))
    )
    assert [each[: len(problem or "")] for each in problems] == ([problem] if problem else [])
