"""The image, as far as it can be checked without building it: paths, configurations, commands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from tempfile import gettempdir

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from serving.server_config import ServerConfig, read_config
from tests.docs.commands import parsed

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy/docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
DEVICES = {"cpu": "cpu", "gpu": "cuda"}


def instructions(name: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def test_what_the_build_copies_is_there_and_not_ignored() -> None:
    kept = {
        line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"
    }
    sources = {
        source.format(DEVICE=device)
        for line in instructions("COPY")
        if "--from" not in line
        for source in line.replace("${", "{").split()[:-1]
        for device in DEVICES
    }
    assert "deploy/docker/gpu.yaml" in sources
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {source.split("/")[0] for source in sources} == kept


def test_the_build_copies_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {f"{package}/ {package}/" for package in packages} <= set(instructions("COPY"))


def locked(name: str) -> dict[str, str]:
    """Return the version of each package of a lock file; each must have hashes."""
    lines = (DOCKER / f"requirements-{name}.txt").read_text().splitlines()
    if lines[0].startswith("-r "):
        lines = [*(DOCKER / lines[0].removeprefix("-r ")).read_text().splitlines(), *lines[1:]]
    assert [line for line in lines if "--hash=sha256:" not in line] == []
    versions = (line.split()[0].partition("==") for line in lines)
    return {
        canonicalize_name(package.partition("[")[0]): version for package, _, version in versions
    }


@pytest.mark.parametrize("extra", DEVICES)
def test_what_it_installs_is_locked_within_the_ranges_of_the_project(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras[extra], *extras["postgresql"], *extras["speech"]]
    versions = locked(extra)
    for requirement in map(Requirement, wanted):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: run `make lock`"


def test_the_tools_of_the_build_are_locked() -> None:
    wanted = (DOCKER / "tools.in").read_text().splitlines()
    versions = locked("tools")
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])
    assert "--require-hashes" in DOCKERFILE and not re.search(r"pip install [a-z\"]", DOCKERFILE)


@pytest.mark.parametrize(("image", "device"), DEVICES.items())
def test_the_image_serves_every_shipped_checkpoint(image: str, device: str) -> None:
    config = read_config(DOCKER / f"{image}.yaml")
    (group,) = config.groups
    shipped = {path.parent.name for path in ROOT.glob("models/checkpoints/*/config.json")}
    assert {bundle.name for bundle in group.bundles} == shipped
    assert group.bundles[0].name == "transformer-en-fr"
    assert group.device == device
    assert config.host == "0.0.0.0"


def test_it_listens_where_it_says() -> None:
    port = ServerConfig.model_fields["port"].default
    assert instructions("EXPOSE") == [str(port)]
    for image in DEVICES:
        assert read_config(DOCKER / f"{image}.yaml").port == port


@pytest.mark.skipif(not shutil.which("wget"), reason="needs wget")
@pytest.mark.usefixtures("server_url")
def test_its_health_check_asks_the_server_where_it_listens(tmp_path: Path) -> None:
    command = json.loads(instructions("HEALTHCHECK")[0].split("CMD ")[1])
    written = tmp_path / "attendant-x/health-url"
    written.parent.mkdir()

    def is_healthy(url: str) -> bool:
        written.write_text(url)
        environment = os.environ | {"TMPDIR": str(tmp_path)}
        return subprocess.run(command, env=environment, check=False).returncode == 0

    # Other servers may run, or may have been killed.
    told = [path.read_text() for path in Path(gettempdir()).glob("attendant-*/health-url")]
    assert any(map(is_healthy, told))
    assert not is_healthy("http://127.0.0.1:9/health\n")


def test_its_commands_are_ours() -> None:
    (command,) = map(json.loads, instructions("CMD"))
    assert parsed([str(DOCKER / "cpu.yaml") if "." in word else word for word in command])
    (export,) = re.findall(r"attendant export .*?;", "".join(instructions("RUN")))
    for precision in ("int8", "fp16"):
        words = shlex.split(export.rstrip(" ;").replace("${PRECISION}", precision))
        assert parsed(words).params["precision"] == precision
