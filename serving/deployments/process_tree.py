"""Wait for child processes, and end all descendants of this process so that none stays behind."""

import ctypes
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_SET_CHILD_SUBREAPER = 36  # prctl(2)
_END_SECONDS = 5.0


class HasFileno(Protocol):
    def fileno(self) -> int: ...


class Process(NamedTuple):
    """A process. name, state: as in proc(5)."""

    pid: int
    parent: int
    name: str
    state: str


class ProcessWatch:
    """Calls a function when a child process ends, or when a file becomes readable.

    Replicas and Serve's controller need no watching: Ray starts them again.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._pids: set[int] = set()

    def add(self, pid: int, on_end: Callable[[], None]) -> None:
        """Call `on_end` when this child process ends."""
        self._pids.add(pid)
        self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, on_end))

    def add_file(self, file: HasFileno, on_readable: Callable[[], object]) -> None:
        """Call `on_readable` while this file is readable."""
        self._selector.register(file, selectors.EVENT_READ, (None, on_readable))

    def run(
        self,
        beat: Callable[[], None],
        beat_seconds: float | None,
        until: "Future[Any] | None" = None,
    ) -> None:
        """Wait until the future is done or a function raises. beat: called at least every
        `beat_seconds`.
        """
        with self._woken_by_signals() as wake:
            if until is not None:
                until.add_done_callback(lambda _: wake())
            while until is None or not until.done():
                beat()
                for key, _ in self._selector.select(beat_seconds):
                    key.data[1]() if key.data[0] is None else self._handle_end(key)
                reap_adopted(self._pids)

    def _handle_end(self, key: selectors.SelectorKey) -> None:
        pid, on_end = key.data
        self._selector.unregister(key.fileobj)
        os.close(key.fd)
        on_end()
        self._pids.discard(pid)

    @contextmanager
    def _woken_by_signals(self) -> Iterator[Callable[[], object]]:
        """Wake `run` at every signal, so also when any child ends: adopted ones are not known
        beforehand. Yield a function that wakes it, too, from any thread.
        """
        reader, writer = socket.socketpair()
        with reader, writer:
            reader.setblocking(False)
            writer.setblocking(False)
            before = signal.signal(signal.SIGCHLD, lambda *_: None)
            signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            self.add_file(reader, lambda: reader.recv(4096))
            try:
                yield partial(_wake, writer)
            finally:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, before)
                self._selector.unregister(reader)


def _wake(writer: socket.socket) -> None:
    with suppress(OSError):  # it is awake, or has ended
        writer.send(b"\0")


@contextmanager
def ending_descendants() -> Iterator[None]:
    """Adopt orphaned descendants; when the block ends, kill and reap all descendants."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        deadline = time.monotonic() + _END_SECONDS
        # Repeat: a process may have started another before it was killed.
        while (pids := descendants(os.getpid())) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reap_adopted(set())
            time.sleep(0.02)


def reap_adopted(own_pids: set[int]) -> None:
    """Reap children that have ended. own: process ids that other code waits for."""
    for child in children():
        if child.state == "Z" and child.pid not in own_pids:
            with suppress(ChildProcessError):
                os.waitpid(child.pid, os.WNOHANG)


def children() -> Iterator[Process]:
    return (process for process in processes() if process.parent == os.getpid())


def descendants(pid: int) -> set[int]:
    """Return the process ids of all children of a process, their children, and so on."""
    every = list(processes())
    pids = {pid}
    while more := {process.pid for process in every if process.parent in pids} - pids:
        pids |= more
    return pids - {pid}


def processes() -> Iterator[Process]:
    """Yield all processes of this machine."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in brackets, may itself contain brackets and spaces.
            head, _, tail = path.read_text(errors="replace").rpartition(")")
            state, parent, *_ = tail.split()
            yield Process(int(path.parent.name), int(parent), head.partition("(")[2], state)
