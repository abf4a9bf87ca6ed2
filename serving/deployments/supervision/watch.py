"""Waits for parts of the server to end, each of which has its answer.

Replicas and Serve's controller are not here: Ray starts them again.
"""

import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serving.deployments.supervision.family import reap_adopted


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
