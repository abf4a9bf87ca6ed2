"""Wait for child processes, and end all descendants of this process so that none is left behind."""

import ctypes
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
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


class Watch:
    """Holds the processes that are watched."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._pids: set[int] = set()

    def add(self, pid: int, answer: Callable[[], None]) -> None:
        """Call `answer` when this child of ours has ended."""
        self._pids.add(pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, answer))

    def run(self, beat: Callable[[], None], beat_seconds: float | None) -> None:
        """Until an answer raises. beat: called about every `beat_seconds`."""
        with self._woken_by_children():
            while True:
                beat()
                for key, _ in self._selector.select(beat_seconds):
                    key.data[1]() if key.data[0] is None else self._answer(key)
                reap_adopted(self._pids)

    def _answer(self, key: selectors.SelectorKey) -> None:
        pid, answer = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        answer()
        self._pids.discard(pid)

    @contextmanager
    def _woken_by_children(self) -> Iterator[None]:
        """Wake at any end of a child: of those that were adopted nobody knows beforehand."""
        reader, writer = socket.socketpair()
        with reader, writer:
            reader.setblocking(False)
            writer.setblocking(False)
            before = signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self._selector.register(reader, selectors.EVENT_READ, (None, lambda: reader.recv(4096)))
            try:
                yield
            finally:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, before)
                self._selector.close()
