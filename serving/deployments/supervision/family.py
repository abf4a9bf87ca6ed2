"""Sees to it that no process that a run has started outlives it, or stays behind as a zombie."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

_SET_CHILD_SUBREAPER = 36  # prctl(2)
_END_SECONDS = 5.0


class Member(NamedTuple):
    """Describes a process: its state as proc(5) has it."""

    pid: int
    parent: int
    state: str


@contextmanager
def family() -> Iterator[None]:
    """Adopt what descendants leave behind; at the end, kill and reap all there are."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        _end_all()


def reap_adopted(own: set[int]) -> None:
    """Reap children that have ended. own: those that somebody else waits for."""
    for child in _members():
        if child.parent == os.getpid() and child.state == "Z" and child.pid not in own:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def _end_all() -> None:
    """Again until none is left: who is killed may have started another in between."""
    deadline = time.monotonic() + _END_SECONDS
    while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap_adopted(set())
        time.sleep(0.02)


def descendants(pid: int) -> set[int]:
    """Return the ids of all processes that this one has started, and those that these have."""
    members = list(_members())
    found = {pid}
    while more := {each.pid for each in members if each.parent in found} - found:
        found |= more
    return found - {pid}


def _members() -> Iterator[Member]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in brackets, may itself contain brackets and spaces.
            state, parent, *_ = path.read_text(errors="replace").rpartition(")")[2].split()
            yield Member(int(path.parent.name), int(parent), state)
