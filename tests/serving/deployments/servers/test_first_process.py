"""`attendant serve` as the first process of a container, which inherits every orphan and is sent no
signal that it has not asked for.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.deployments.process_tree import descendants
from tests.served import ROOT, eventually, free_port, int8_bundle
from tests.serving.deployments.parts import name_of

OWN_PROCESSES = ["unshare", "--pid", "--fork", "--mount-proc"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        subprocess.run([*OWN_PROCESSES, "true"], capture_output=True, check=False).returncode != 0,
        reason="needs root, for process ids of its own",
    ),
]


@contextmanager
def first_process(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A server that sees itself as process 1; with it, its id as all others see it."""
    command = [*OWN_PROCESSES, sys.executable, "-m", "serving.cli", "serve", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        assert eventually(lambda: bool(children.read_text()))
        server = int(children.read_text())
        try:
            yield process, server
        finally:
            if process.poll() is None:
                os.kill(server, signal.SIGKILL)  # all others there end with it


def zombies_of(server: int) -> list[Path]:
    """The children of a process that nobody has waited for."""
    pids = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    states = {Path(f"/proc/{pid}/stat") for pid in pids}
    return [path for path in states if path.read_text().rpartition(")")[2].split()[0] == "Z"]


def programs_of(server: int) -> set[str]:
    """What its descendants call themselves, without what follows a colon."""
    return {re.sub("(?<!:):(?!:).*", "", name_of(pid)) for pid in descendants(server)}


def test_orphans_are_reaped_and_sigterm_ends_in_time(tmp_path: Path) -> None:
    bundle = int8_bundle("tiny", "transformer", tmp_path)
    with first_process(str(bundle), "--port", str(free_port())) as (process, server):
        assert process.stderr is not None
        assert any(line.startswith("Serving on ") for line in process.stderr)
        assert programs_of(server) == {
            *("haproxy", "gcs_server", "raylet", "cat"),
            *("ray::ServeController", "ray::ServeReplica"),
        }
        inside = ["nsenter", "-t", str(server), "--pid", "--mount"]
        orphans = "sleep 0.2 & sleep 0.3 & sleep 1000 &"
        subprocess.run([*inside, "sh", "-c", orphans], check=True)
        time.sleep(0.5)
        assert eventually(lambda: not zombies_of(server))

        os.kill(server, signal.SIGTERM)

        assert process.wait(timeout=30) == 0
    assert not Path(f"/proc/{server}").exists()


def test_sigterm_ends_it_before_anything_has_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bundle.json")  # to read it takes for ever
    with first_process(str(tmp_path)) as (process, server):
        assert eventually(lambda: is_read(tmp_path / "bundle.json"))
        os.kill(server, signal.SIGTERM)
        assert process.wait(timeout=5) == 128 + signal.SIGTERM


def is_read(pipe: Path) -> bool:
    try:
        os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # stays open: else its reader would go on
    except OSError:
        return False
    return True
