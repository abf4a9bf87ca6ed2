"""Show the log records of replicas on the console of `attendant serve`.

Ray starts the replicas, and writes their output to files. So replicas send each record over a Unix
socket instead. Without the socket, as on a cluster, records go to Ray Serve's own log.
"""

import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from serving.server_config import CONSOLE

_SOCKET_VARIABLE = "ATTENDANT_CONSOLE_SOCKET"
_MAX_RECORD_BYTES = 2**16
_TIMEOUT_SECONDS = 0.1  # a blocked console must not block a replica for longer
_ACCESS_LOGGER = "attendant.access"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def console(folder: Path, write_line: Callable[[str], None]) -> Iterator[None]:
    """Write the records of replicas that are started within the block."""
    address = str(folder / "console.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        thread = threading.Thread(
            target=_show, args=(receiver, write_line), name="console", daemon=True
        )
        thread.start()
        os.environ[_SOCKET_VARIABLE] = address
        try:
            yield
        finally:
            del os.environ[_SOCKET_VARIABLE]
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", address)
            thread.join()


def log_to_console() -> None:
    """Send this package's records of this process to the console or to Ray Serve's log."""
    address = os.environ.get(_SOCKET_VARIABLE)
    handlers = [_Sender(address)] if address else logging.getLogger("ray.serve").handlers
    logger = logging.getLogger("serving")
    logger.setLevel(logging.INFO)
    for handler in handlers:
        logger.addHandler(handler)


def writer_to(place: Path | None) -> Callable[[str], None] | None:
    """Return a function that writes lines to a file or to the console; None if `place` is None.

    All replicas append to one file, each line in one write. Another process may rotate the file.
    """
    if place is None:
        return None
    logger = logging.getLogger(_ACCESS_LOGGER)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    for handler in _handlers_of(place):
        logger.addHandler(handler)
    return logger.info


def _handlers_of(place: Path) -> list[logging.Handler]:
    if place != CONSOLE:
        return [WatchedFileHandler(place, encoding="utf-8")]
    address = os.environ.get(_SOCKET_VARIABLE)
    return [_Sender(address, "%(message)s")] if address else logging.getLogger("ray.serve").handlers


def _show(receiver: socket.socket, write_line: Callable[[str], None]) -> None:
    """Write records until an empty one comes."""
    while record := receiver.recv(_MAX_RECORD_BYTES):
        write_line(record.decode(errors="replace"))


class _Formatter(logging.Formatter):
    def formatException(self, exc_info: Any) -> str:
        """Return the traceback without printing: Ray Serve replaces `print` in a replica."""
        return "".join(traceback.format_exception(*exc_info)).rstrip()


class _Sender(logging.Handler):
    def __init__(self, address: str, layout: str = _FORMAT) -> None:
        super().__init__()
        self.setFormatter(_Formatter(layout))
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_TIMEOUT_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record. If it is too long only its end is sent, the useful part of a traceback."""
        text = self.format(record).encode(errors="backslashreplace")
        try:
            self._socket.sendto(text[-_MAX_RECORD_BYTES:], self._address)
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        self._socket.close()
        super().close()
