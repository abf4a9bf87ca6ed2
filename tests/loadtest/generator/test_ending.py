"""A run that is ended from outside keeps what it has measured."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loadtest.mock.behaviour import Behaviour
from loadtest.mock.server import mock_server
from loadtest.records import CANCELLED, OK, read_recording

PROGRAM = "from loadtest.cli import loadtest\nif __name__ == '__main__':\n    loadtest()\n"


@contextmanager
def running(path: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """Run the command in a process of its own, until there are some answers."""
    program = path.with_suffix(".py")
    program.write_text(PROGRAM)
    behaviour = Behaviour(first_token_seconds=0.3, num_tokens=1)
    with mock_server(behaviour) as url:
        arguments = [url, "--rate", "20", "--warm-up", "0.1", "--record", str(path), *options]
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            wait_for_lines(path, 10)
            yield process
        finally:
            process.kill()
            process.communicate()


def wait_for_lines(path: Path, count: int) -> None:
    for _ in range(600):
        if path.exists() and path.read_text().count("\n") >= count:
            return
        time.sleep(0.05)
    raise AssertionError("the run has not begun")


def test_ctrl_c_ends_in_order_with_a_report(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(path) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "answers" in output.lower()
    recording = read_recording(path)
    assert recording.is_complete
    assert recording.seconds < 20
    assert {request.outcome for request in recording.requests} == {OK, CANCELLED}


def test_a_kill_leaves_what_was_measured_and_nobody_behind(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(path, "--processes", "2") as process:
        process.kill()
        process.communicate(timeout=30)
        time.sleep(1.0)
        size = path.stat().st_size
        time.sleep(1.0)
        assert path.stat().st_size == size
    recording = read_recording(path)
    assert not recording.is_complete
    assert len([request for request in recording.requests if request.outcome == OK]) > 5
    assert recording.seconds > 0


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(path) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        [worker] = [int(pid) for pid in children if "spawn_main" in command_of(pid)]
        os.kill(worker, signal.SIGKILL)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"a process of the generator has died; what was measured is in {path}" in errors
    assert read_recording(path).requests


def command_of(pid: str) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
