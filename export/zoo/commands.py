"""Other commands of ours in processes of their own: their threads and memory end with them."""

import subprocess
import sys
from typing import IO, Any

from export.zoo.errors import ZooError

SHOWN_LINES = 12


def attendant(*words: object, held: IO[Any], shows: bool = False) -> str:
    """What `attendant WORDS...` writes to standard output. `shows` lets its progress through.

    `held` stays open as long as the process lives, should this one die before it. Raises ZooError.
    """
    done = subprocess.run(
        [sys.executable, "-m", "serving.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.PIPE,
        text=True,
        pass_fds=[held.fileno()],
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()[-SHOWN_LINES:]
        raise ZooError([f"attendant {words[0]} ended with status {done.returncode}", *said])
    return done.stdout
