"""`attendant doctor`, as a user runs it, on machines that lack something."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.served import ROOT, eventually, free_port

CHECKS = {
    "python",
    "packages",
    "ONNX Runtime",
    "kernels",
    "recordings",
    "processor",
    "memory",
    "shared memory",
    "GPU",
    "HAProxy",
    "open files",
    "ports",
    "earlier runs",
    "cache",
    "disk",
    "state",
    "clock",
}


def run(
    *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "serving.cli", "doctor", *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        **options,
    )


def findings(
    *arguments: str, environment: Mapping[str, str] | None = None, **options: Any
) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit code, and what was found by the names of the checks."""
    port = ("--port", str(free_port()))
    result = run("--json", *port, *arguments, environment=environment, **options)
    assert "Traceback" not in result.stderr, result.stderr
    return result.returncode, {entry["check"]: entry for entry in json.loads(result.stdout)}


def test_a_page_has_a_line_for_each_check(tmp_path: Path) -> None:
    code, found = findings(environment={"ATTENDANT_STATE": str(tmp_path / "new" / "state")})
    assert code == 0 and found.keys() == CHECKS
    assert not any(entry["status"] == "error" for entry in found.values())
    assert not (tmp_path / "new").exists()  # nothing is changed
    page = run("--port", str(free_port()))
    assert page.returncode == 0
    assert all(any(f" {check} " in line for line in page.stdout.splitlines()) for check in CHECKS)


def test_ray_is_not_imported() -> None:
    code = (
        "import sys; from serving.cli import main\n"
        f"main(['doctor', '--port', '{free_port()}'], standalone_mode=False)\n"
        "assert not {'ray', 'torch'} & sys.modules.keys()"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_taken_port_is_a_warning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = findings("--port", str(server.getsockname()[1]))
    assert (code, found["ports"]["status"]) == (0, "warning")
    assert "cannot listen on" in found["ports"]["text"]


def test_kernels_that_are_off_are_a_warning() -> None:
    code, found = findings(environment={"ATTENDANT_KERNELS": "off"})
    assert (code, found["kernels"]["status"]) == (0, "warning")
    assert found["kernels"]["advice"] == "unset ATTENDANT_KERNELS"


def test_a_state_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, found = findings(environment={"ATTENDANT_STATE": str(tmp_path / "file" / "state")})
    assert (code, found["state"]["status"]) == (1, "error")
    assert f"{tmp_path / 'file'} is no folder" in found["state"]["text"]


def test_too_few_open_files_are_an_error() -> None:
    few = (500, 500)
    code, found = findings(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
    assert (code, found["open files"]["status"]) == (1, "error")
    assert "ulimit -Hn" in found["open files"]["advice"]


def test_folders_of_a_killed_server_are_named_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "attendant-12345678"
    folder.mkdir()
    (folder / "claim").touch()
    code, found = findings(environment={"TMPDIR": str(tmp_path)})
    assert code == 0 and str(folder) in found["earlier runs"]["text"]
    assert folder.exists()


def test_processes_of_a_killed_server_are_named(tmp_path: Path) -> None:
    raylet = tmp_path / "raylet"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", raylet)
    started = subprocess.run(
        ["sh", "-c", f"{raylet} 300 >/dev/null 2>&1 & echo $!"],
        capture_output=True,
        text=True,
        check=True,
    )
    pid = int(started.stdout)
    try:
        stat = Path(f"/proc/{pid}/stat")
        if not eventually(lambda: stat.read_text().split()[3] == "1", 5):
            pytest.skip("another process than the first adopts orphans here")
        code, found = findings()
        assert (code, found["earlier runs"]["status"]) == (0, "warning")
        assert f"raylet ({pid})" in found["earlier runs"]["text"]
        assert str(pid) in found["earlier runs"]["advice"]
    finally:
        os.kill(pid, signal.SIGKILL)


def test_servers_that_do_not_answer_are_named_without_passwords() -> None:
    environment = {
        "PIP_INDEX_URL": f"http://me:secret@127.0.0.1:{free_port()}/simple",
        "HF_ENDPOINT": f"http://127.0.0.1:{free_port()}",
    }
    code, found = findings("--network", environment=environment)
    assert code == 0
    for check in ("package index", "hub"):
        assert found[check]["status"] == "warning" and "refused" in found[check]["text"]
    assert "secret" not in json.dumps(found)
