"""What the processes of a server take: memory, file descriptors and threads, as time goes by."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from serving.deployments.process_tree import descendants


@dataclass(frozen=True)
class Sample:
    """pss_mib: memory; shared pages count in equal parts to those who share them."""

    seconds: float
    pss_mib: float
    num_files: int
    num_threads: int


def sample(server: int, seconds: float) -> Sample:
    pids = [server, *descendants(server)]
    return Sample(
        seconds,
        sum(map(_pss_kib, pids)) / 1024,
        sum(_entries(pid, "fd") for pid in pids),
        sum(_entries(pid, "task") for pid in pids),
    )


def _pss_kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0  # it has ended


def _entries(pid: int, folder: str) -> int:
    with suppress(OSError):
        return sum(1 for _ in Path(f"/proc/{pid}/{folder}").iterdir())
    return 0


@dataclass(frozen=True)
class Series:
    """One kind of figure. growth: its change from the first to the last third of what counts."""

    seconds: NDArray[np.float64]
    values: NDArray[np.float64]
    growth: float


def series(
    samples: list[Sample], name: str, from_seconds: float, kills: list[float], settle: float
) -> Series:
    """Return a figure over time.

    from_seconds: warm-up before it does not count. settle: seconds after a kill in which the new
        process is still filling its caches, which do not count either.
    """
    seconds = np.array([each.seconds for each in samples])
    found = np.array([float(getattr(each, name)) for each in samples])
    counts = seconds >= from_seconds
    for kill in kills:
        counts &= (seconds < kill) | (seconds > kill + settle)
    kept = found[counts]
    third = max(1, len(kept) // 3)
    if len(kept) < 3:
        return Series(seconds, found, 0.0)
    before, after = np.median(kept[:third]), np.median(kept[-third:])
    return Series(seconds, found, float(after / before - 1))
