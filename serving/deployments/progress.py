"""Say on stderr what a start waits for, and for how long it has."""

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_LOG_SECONDS = 5


class StartProgress:
    """Writes lines to stderr, and says between them which step runs.

    On a terminal the step is the last line, and counts its seconds; elsewhere it gets a line every
    few seconds. When it ends its line says how long it has taken.
    """

    def __init__(self) -> None:
        self._is_on_terminal = sys.stderr.isatty()
        self._lock = threading.Lock()
        self._step = ""
        self._has_ended = False

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step while the block runs."""
        began = time.monotonic()
        ended = threading.Event()

        def count() -> None:
            seconds = 0
            while not ended.wait(began + seconds + 1 - time.monotonic()) and not self._has_ended:
                seconds += 1
                if self._is_on_terminal:
                    self._show(f"{name} ... {seconds} s")
                elif seconds % _LOG_SECONDS == 0:
                    self.write_line(f"{name} ... {seconds} s")

        self._show(f"{name} ...")
        counter = threading.Thread(target=count, name="progress", daemon=True)
        counter.start()
        try:
            yield
        finally:
            ended.set()
            counter.join()
            self._show("")
        if not self._has_ended:
            self.write_line(f"{name}: {time.monotonic() - began:.1f} s")

    def end(self) -> None:
        """Show no step any more, also not those that still run in other threads."""
        self._show("")
        self._has_ended = True

    def write_line(self, line: str) -> None:
        """Write a line, above the step's on a terminal."""
        with self._lock:
            self._write(f"{self._erasing_codes()}{line}\n{self._step}")

    def _show(self, step: str) -> None:
        """Show this as the last line of a terminal."""
        if self._is_on_terminal and not self._has_ended:
            with self._lock:
                erased = self._erasing_codes()
                self._step = step[: shutil.get_terminal_size().columns - 1]
                self._write(erased + self._step)

    def _erasing_codes(self) -> str:
        return "\r\x1b[K" if self._step else ""

    @staticmethod
    def _write(text: str) -> None:
        with suppress(OSError):  # nobody reads it
            sys.stderr.write(text)
            sys.stderr.flush()
