"""Shows what replicas log on the console of `attendant serve`.

Replicas are processes of Ray's, which keeps what they write in files that nobody looks into. They
send each record over a Unix socket instead. Where there is none, as on a cluster, records go where
Ray Serve's own do.
"""

import logging
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from serving.server_config import CONSOLE

_SOCKET_VARIABLE = "ATTENDANT_CONSOLE_SOCKET"
_MAX_RECORD_BYTES = 2**16
_TIMEOUT_SECONDS = 0.1  # a console that stands still holds a replica up for no longer
_LINES = "attendant.access"
_FORMAT = "%(asctime)s %(levelname)s %(message)s"


@contextmanager
def console(folder: Path) -> Iterator[None]:
    """Show on stderr what replicas log that are started within the block."""
    address = str(folder / "console.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(address)
        shown = threading.Thread(target=_show, args=(door,), name="console", daemon=True)
        shown.start()
        os.environ[_SOCKET_VARIABLE] = address
        try:
            yield
        finally:
            del os.environ[_SOCKET_VARIABLE]
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
                last.sendto(b"", address)
            shown.join()


def log_to_console() -> None:
    """Choose, in a replica, where this package's records go, what it tells of itself included."""
    address = os.environ.get(_SOCKET_VARIABLE)
    handlers = [_Sender(address)] if address else logging.getLogger("ray.serve").handlers
    logger = logging.getLogger("serving")
    logger.setLevel(logging.INFO)
    for handler in handlers:
        logger.addHandler(handler)


def writer_to(place: Path | None) -> Callable[[str], None] | None:
    """Make what writes lines, in a replica, to a file or to the console; None where `place` is.

    All replicas append to one file, each line in one piece. It may be moved away while they do.
    """
    if place is None:
        return None
    logger = logging.getLogger(_LINES)
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


def _show(door: socket.socket) -> None:
    """Until an empty record comes."""
    while record := door.recv(_MAX_RECORD_BYTES):
        with suppress(OSError):  # nobody reads
            print(record.decode(errors="replace"), file=sys.stderr, flush=True)


class _Formatter(logging.Formatter):
    def formatException(self, exc_info: Any) -> str:
        """Say nothing: the standard handler prints, and in a replica Ray Serve has put its own
        `print` in place.
        """
        return "".join(traceback.format_exception(*exc_info)).rstrip()


class _Sender(logging.Handler):
    def __init__(self, address: str, layout: str = _FORMAT) -> None:
        super().__init__()
        self.setFormatter(_Formatter(layout))
        self._address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_TIMEOUT_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        """Cut a text that is too long: of a traceback the end says most."""
        text = self.format(record).encode(errors="backslashreplace")
        try:
            self._socket.sendto(text[-_MAX_RECORD_BYTES:], self._address)
        except OSError:
            self.handleError(record)

    def close(self) -> None:
        self._socket.close()
        super().close()
