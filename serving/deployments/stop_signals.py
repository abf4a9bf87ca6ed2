"""SIGTERM, SIGINT and SIGHUP, as something to wait for."""

import os
import signal
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """Raised where the server waits, after it was asked to stop. number: of the signal."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class StopSignals:
    """Remembers the first signal that asks this process to stop; later ones change nothing.

    An exception raised by the handler itself would come at any line: within a destructor or a
    callback of Ray, which swallow it, or after a process was started and before it was noted. So
    the main thread waits for `fileno()` to become readable, and stops where it can end in order.

    number: the first signal, None until there is one.
    """

    def __init__(self) -> None:
        self.number: signal.Signals | None = None
        self._reader, self._writer = os.pipe()
        for number in STOP_SIGNALS:
            # nohup, for one, has SIGHUP ignored.
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def fileno(self) -> int:
        """Return a file descriptor that is readable once there was a signal."""
        return self._reader

    def raise_stopped(self) -> None:
        """Raise Stopped if there was a signal."""
        if self.number is not None:
            raise Stopped(self.number)

    def _note(self, number: int, frame: FrameType | None) -> Any:
        if self.number is None:
            self.number = signal.Signals(number)
            os.write(self._writer, b"\0")
