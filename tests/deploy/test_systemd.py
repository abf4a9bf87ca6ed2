"""The unit for systemd, as far as it can be checked without a systemd that runs."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

from serving.commands.serve import A_PART_ENDED
from serving.deployments.stop_signals import STOP_SIGNALS
from tests.docs.commands import parsed

UNIT = Path(__file__).parents[2] / "deploy/systemd/attendant.service"


@pytest.fixture
def service() -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return unit["Service"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_understands_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/attendant/bin/attendant", "/bin/true"))
    checked = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_command_is_one(service: configparser.SectionProxy) -> None:
    program, *arguments = service["ExecStart"].split()
    assert Path(program).name == "attendant"
    assert parsed(["attendant", *arguments])


def test_a_part_that_ended_is_a_reason_to_start_again(service: configparser.SectionProxy) -> None:
    assert service["Restart"] == "on-failure"
    assert str(A_PART_ENDED) not in service["RestartPreventExitStatus"].split()


def test_a_stop_is_a_success_at_every_stage(service: configparser.SectionProxy) -> None:
    statuses = {str(128 + number) for number in STOP_SIGNALS}
    assert set(service["SuccessExitStatus"].split()) == statuses
