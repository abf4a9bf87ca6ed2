"""Stops a run in order: between two steps, or at once where weights do not change."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stopped(Exception):
    """Says that the run was asked to stop and has saved where it is."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal.Signals(signal_number).name)
        self.signal_number = signal_number


class Brake:
    """Remembers that a signal came until it is safe to stop."""

    def __init__(self) -> None:
        self._pulled_by: int | None = None
        self._is_safe = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Let SIGTERM and Ctrl-C pull it; a second one does what it did before."""
        self._before = {number: signal.signal(number, self._pull) for number in SIGNALS}
        try:
            yield
        finally:
            self._restore()

    @contextmanager
    def safe(self) -> Iterator[None]:
        """Open a block that may be left in the middle. Raises Stopped."""
        self.check()
        self._is_safe = True
        try:
            yield
        finally:
            self._is_safe = False

    def check(self) -> None:
        """Raises Stopped if it was pulled."""
        if self._pulled_by is not None:
            raise Stopped(self._pulled_by)

    def _pull(self, number: int, frame: FrameType | None) -> None:
        self._pulled_by = number
        self._restore()
        if self._is_safe:
            self.check()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
