"""The image, really built and run: `pytest -m image`, as root where buildah and debootstrap are."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from deploy.command import deploy
from tests.deploy.rendered import ROOT
from tests.served import free_port

IMAGE = "localhost/attendant:test"
FOLDER = ROOT / "deploy/docker"
COMPILERS = ("gcc", "cc", "g++", "make", "ld")

pytestmark = [
    pytest.mark.image,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("buildah", "debootstrap"))),
        reason="needs root, buildah and debootstrap",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def image() -> None:
    subprocess.run([FOLDER / "build-without-docker", IMAGE], check=True)


def run(*words: str) -> subprocess.Popen[str]:
    command: list[str | Path] = [FOLDER / "run-without-docker", IMAGE, *words]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def output_of(*words: str) -> str:
    text, _ = run(*words).communicate(timeout=300)
    return text


@contextmanager
def serving() -> Iterator[str]:
    port = str(free_port())
    config = "/etc/attendant/server.yaml"
    with run("attendant", "serve", "--config", config, "--port", port) as process:
        assert process.stdout
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Serving on"):
                break
        else:
            raise AssertionError("".join(lines))
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def test_it_serves_on_a_root_that_cannot_be_written_to() -> None:
    with serving() as url:
        done = CliRunner().invoke(deploy, ["smoke", url])
    assert done.exit_code == 0, done.output


def test_its_user_is_nobody_special_and_it_has_no_compiler() -> None:
    look = f"for name in {' '.join(COMPILERS)}; do command -v $name; done"
    user, refusal, *compilers = output_of(
        "sh", "-c", f"id -u; touch /anything 2>&1; {look}"
    ).splitlines()
    assert user == "1000"
    assert "Read-only file system" in refusal
    assert compilers == []


def test_its_parts_are_listed() -> None:
    listed = json.loads(output_of("cat", "/usr/share/doc/attendant/sbom.json"))
    names = {part["name"] for part in listed["components"]}
    assert listed["bomFormat"] == "CycloneDX"
    assert {"attendant", "ray", "onnxruntime"} <= names


def test_its_size_is_known() -> None:
    images = subprocess.run(["buildah", "images", IMAGE], capture_output=True, text=True).stdout
    (size,) = re.findall(r"([\d.]+) MB$", images, re.MULTILINE)
    assert float(size) < 950  # of these, 36 are the tables of CLDR
