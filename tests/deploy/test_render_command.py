"""`attendant deploy render` writes what it says, or tells what keeps it from that."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from deploy.command import deploy
from serving.errors import ConfigError
from tests.deploy.rendered import GROUP

TARGETS = ["compose", "kubernetes", "helm", "rayservice", "ray"]


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_written(target: str, tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(yaml.safe_dump({"groups": [GROUP]}))
    words = ["render", target, "-c", str(tmp_path / "server.yaml"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(deploy, words)
    assert done.exit_code == 0, done.output
    written = {path for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert {Path(line) for line in done.output.splitlines()} == written


def test_a_configuration_that_leaves_much_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.yaml").write_text(yaml.safe_dump({"groups": [{"bundles": ["here"]}]}))
    words = ["render", "ray", "-c", str(tmp_path / "server.yaml"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(deploy, words)
    assert isinstance(done.exception, ConfigError)
    assert len(done.exception.problems) == 3
    assert not (tmp_path / "out").exists()
