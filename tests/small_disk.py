"""A small disk, for what happens once it is full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_FILLER = "filler"


@contextmanager
def small_disk(folder: Path, mib: int = 8) -> Iterator[Path]:
    """Mount a disk of its own there. Skips the test where that is not permitted."""
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(mounting, capture_output=True).returncode != 0:
        pytest.skip("only root mounts a disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, kib_left: int = 0) -> None:
    """Leave only so much room, in whole pages, whatever else is written meanwhile."""
    with suppress(OSError), (disk / _FILLER).open("ab", buffering=0) as file:
        while os.statvfs(disk).f_bfree > kib_left // 4:
            file.write(bytes(4096))


def make_room(disk: Path) -> None:
    (disk / _FILLER).unlink(missing_ok=True)


def make_read_only(disk: Path, is_so: bool = True) -> None:
    option = "ro" if is_so else "rw"
    subprocess.run(["mount", "-o", f"remount,{option}", str(disk)], check=True)
