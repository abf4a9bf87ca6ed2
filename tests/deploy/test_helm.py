"""The chart: it asks only for values that it has, and Helm renders the plain manifests."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.rendering import helm, kubernetes
from deploy.rendering.files import write
from tests.deploy.rendered import CANARY, GROUP, SCALED, config

SERVERS = {
    "plain": config(GROUP),
    "all": config(SCALED, bundles_volume="models", canary=CANARY),
}


@pytest.mark.parametrize("name", SERVERS)
def test_the_templates_ask_for_values_that_are_there(name: str) -> None:
    chart = helm.render(SERVERS[name])
    values = yaml.safe_load(chart["values.yaml"])
    template = chart["templates/kubernetes.yaml"]
    paths = {*re.findall(r"\.Values\.([\w.]+)", template)}
    assert {"image", "server", "server.port", "resources"} <= paths
    for path in paths:
        value: Any = values
        for key in path.split("."):
            value = value[key]
    assert "@" not in template
    assert {path.partition(".")[0] for path in paths} == {*values}


@pytest.mark.skipif(not shutil.which("helm"), reason="Helm is not installed")
@pytest.mark.parametrize("name", SERVERS)
def test_helm_renders_the_plain_manifests(name: str, tmp_path: Path) -> None:
    server = SERVERS[name]
    write(tmp_path, helm.render(server))
    subprocess.run(["helm", "lint", "--strict", tmp_path], check=True, capture_output=True)
    command = ["helm", "template", server.deploy.name, str(tmp_path)]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    plain = kubernetes.render(server)["kubernetes.yaml"]
    assert comparable(rendered) == comparable(plain)


def comparable(text: str) -> Any:
    """Return the objects without what is text of the same values, written in another order."""
    objects = sorted(
        yaml.safe_load_all(text), key=lambda each: (each["kind"], str(each["metadata"]))
    )
    for each in objects:
        if each["kind"] == "ConfigMap":
            each["data"] = {name: yaml.safe_load(text) for name, text in each["data"].items()}
        if each["kind"] == "Deployment":
            del each["spec"]["template"]["metadata"]["annotations"]["attendant/configuration"]
        if each["kind"] == "HorizontalPodAutoscaler":
            target = each["spec"]["metrics"][0]["pods"]["target"]
            target["averageValue"] = str(target["averageValue"])
    return objects
