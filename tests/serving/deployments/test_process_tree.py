"""Each part that ends gets its answer, once; processes that nobody waits for are reaped."""

import subprocess
import sys
import time
from functools import partial

import pytest

from serving.deployments.process_tree import ProcessWatch
from tests.served import eventually
from tests.serving.deployments.parts import name_of

ORPHAN = """
import os, time
if not os.fork():
    os.setsid()
    time.sleep(0.3)
    os._exit(0)
"""
WATCHING = f"""
import subprocess, sys, time, threading
from pathlib import Path
from serving.deployments.process_tree import descendants, ending_descendants, ProcessWatch as Watch

def end():
    raise SystemExit(len(descendants(os.getpid())))

import os
with ending_descendants():
    leaves_an_orphan = subprocess.Popen([sys.executable, "-c", {ORPHAN!r}])
    leaves_an_orphan.wait()
    assert len(descendants(os.getpid())) == 1
    last = subprocess.Popen(["sleep", "2"])
    watch = Watch()
    watch.add(last.pid, lambda: (last.wait(), end()))
    watch.run(lambda: None, None)
"""


class Ended(Exception):
    pass


def test_every_end_has_its_answer() -> None:
    watch = ProcessWatch()
    answered = []

    def answer(seconds: float) -> None:
        answered.append(seconds)
        if len(answered) == 3:
            raise Ended

    processes = []
    for seconds in (0.3, 0.0, 0.6):
        processes.append(subprocess.Popen(["sleep", str(seconds)]))
        watch.add(processes[-1].pid, partial(answer, seconds))

    with pytest.raises(Ended):
        watch.run(lambda: None, None)

    assert answered == [0.0, 0.3, 0.6]
    assert [process.wait() for process in processes] == [0, 0, 0]


def test_the_heart_beats() -> None:
    watch = ProcessWatch()
    beats: list[float] = []

    def beat() -> None:
        beats.append(time.monotonic())
        if len(beats) == 4:
            raise Ended

    with pytest.raises(Ended):
        watch.run(beat, 0.05)

    assert beats[-1] - beats[0] >= 0.14


def test_what_descendants_leave_behind_is_adopted_and_reaped() -> None:
    """In a process of its own, which adopts for good."""
    watching = subprocess.run([sys.executable, "-c", WATCHING], timeout=60, check=False)
    assert watching.returncode == 0


STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork():
        os._exit(0)
    os.setsid()
print(os.getpid(), flush=True)
time.sleep(60)
"""
RUN = f"""
import subprocess, sys
from serving.deployments.process_tree import ending_descendants
with ending_descendants():
    process = subprocess.Popen([sys.executable, "-c", {STUBBORN!r}], stdout=subprocess.PIPE)
    print(process.stdout.readline().decode(), flush=True)
"""


def test_a_daemon_ends_with_the_run() -> None:
    run = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert eventually(lambda: not name_of(int(run.stdout)))
