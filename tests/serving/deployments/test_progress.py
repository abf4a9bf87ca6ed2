"""What a start says of its steps, on a terminal and in a log."""

import os
import pty
import re
import sys
import time

import pytest

from serving.deployments import progress as progress_module
from serving.deployments.progress import StartProgress


def test_a_log_gets_a_line_for_each_step_and_others_while_it_lasts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_LOG_SECONDS", 1)
    progress = StartProgress()

    with progress.step("Starting Ray"):
        time.sleep(1.5)
    with progress.step("Loading a"):
        progress.write_line("a: 2 engines")

    lines = [re.sub(r"\d\.\d s", "- s", line) for line in capsys.readouterr().err.splitlines()]
    assert lines[:2] == ["Starting Ray ... 1 s", "Starting Ray: - s"]
    assert lines[2:] == ["a: 2 engines", "Loading a: - s"]


def test_a_step_that_fails_has_not_ended(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no"), StartProgress().step("Starting Ray"):
        raise ValueError("no")

    assert capsys.readouterr().err == ""


def test_a_start_that_was_stopped_says_nothing_of_its_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress_module, "_LOG_SECONDS", 1)
    progress = StartProgress()
    with pytest.raises(SystemExit), progress.step("Starting Ray"):
        progress.end()
        time.sleep(1.2)
        raise SystemExit

    assert capsys.readouterr().err == ""


def test_a_terminal_counts_the_seconds_in_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    with open(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        progress = StartProgress()
        with progress.step("Loading a"):
            progress.write_line("a: 2 engines")
            time.sleep(1.5)
        written = ""
        while not written.endswith(" s\r\n"):
            written += os.read(reader, 4096).decode()
    os.close(reader)

    assert shown_by(written) == ["a: 2 engines", "Loading a: - s", ""]
    assert "Loading a ... 1 s" in written


def shown_by(written: str) -> list[str]:
    """The lines of a terminal that this was written to."""
    lines = [line.split("\x1b[K")[-1].split("\r")[-1] for line in written.split("\r\n")]
    return [re.sub(r"\d\.\d s", "- s", line) for line in lines]
