"""A run that is ended from outside keeps what it has measured."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from loadtest.records import CANCELLED, OK, read_recording
from tests.loadtest.mock_server import Behaviour, mock_server

PROGRAM = "from loadtest.cli import loadtest\nif __name__ == '__main__':\n    loadtest()\n"


@contextmanager
def running(
    path: Path, *options: str, answer_seconds: float = 0.3
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run the command in a process of its own, on a mock server whose URL comes with it."""
    program = path.with_suffix(".py")
    program.write_text(PROGRAM)
    with mock_server(Behaviour(first_token_seconds=answer_seconds, num_tokens=1)) as url:
        arguments = [url, "--rate", "20", "--warm-up", "0.1", "--record", str(path), *options]
        process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        try:
            yield process, url
        finally:
            process.kill()
            process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the run has not begun")


def wait_for_answers(path: Path) -> None:
    wait_for(lambda: path.exists() and path.read_text().count("\n") > 10)


def was_asked(url: str) -> bool:
    with urlopen(url + "log") as answer:
        return bool(json.load(answer))


def test_ctrl_c_ends_in_order_with_a_report(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(path) as (process, _):
        wait_for_answers(path)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "answers" in output.lower()
    recording = read_recording(path)
    assert recording.is_complete
    assert recording.seconds < 20
    assert {request.outcome for request in recording.requests} == {OK, CANCELLED}


def test_ctrl_c_ends_also_what_waits_for_a_first_answer(tmp_path: Path) -> None:
    with running(tmp_path / "run.jsonl", answer_seconds=60.0) as (process, url):
        wait_for(lambda: was_asked(url))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "gave no answer to translate to start with: cancelled: the run was ended" in errors


def test_a_kill_leaves_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with running(path) as (process, _):
        wait_for_answers(path)
        process.kill()
        process.communicate(timeout=30)
    recording = read_recording(path)
    assert not recording.is_complete
    assert len([request for request in recording.requests if request.outcome == OK]) > 5
    assert recording.seconds > 0
