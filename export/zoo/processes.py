"""Run other `attendant` commands in processes of their own: their threads and memory end with
them.
"""

import signal
import subprocess
import sys
from typing import IO, Any

from export.zoo.results import OutOfTime, ZooError

SHOWN_LINES = 12
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)


def attendant(
    *words: object,
    held: IO[Any] | None = None,
    shows: bool = False,
    seconds: float | None = None,
) -> str:
    """Return what `attendant WORDS...` writes to standard output. `shows` lets its progress
    through.

    `held` stays open as long as the process lives, should this one die before it. After `seconds`
    it is stopped as by SIGTERM. Raises ZooError, and OutOfTime where that was early.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "serving.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.PIPE,
        text=True,
        pass_fds=[held.fileno()] if held else [],
    ) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, errors = process.communicate()
            if process.returncode in STOPPED:
                raise OutOfTime from None
        except BaseException:  # what it writes stays whole only if it may end by itself
            process.terminate()
            raise
    if process.returncode:
        said = (errors or out).strip().splitlines()[-SHOWN_LINES:]
        raise ZooError([f"attendant {words[0]} ended with status {process.returncode}", *said])
    return out
