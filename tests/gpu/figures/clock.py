"""Times work on a device that computes behind the host's back."""

import time
from collections.abc import Callable

import torch


def seconds_of(work: Callable[[], object], repeats: int = 3) -> float:
    """The fastest of some, after one for warmth."""
    work()
    found = []
    for _ in range(repeats):
        _wait()
        started = time.perf_counter()
        work()
        _wait()
        found.append(time.perf_counter() - started)
    return min(found)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
