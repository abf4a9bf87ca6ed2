"""Properties of the machine: the CPUs that the process may use, and their instruction sets."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
CPUINFO = Path("/proc/cpuinfo")
MEMINFO = Path("/proc/meminfo")
_SWITCH_INTERVAL_SECONDS = 0.0002
_IS_VECTORS = re.compile("amx|asimd|avx|bf16|f16c|fma|i8mm|sse|sve")


def available_cpus(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> int:
    """Return the number of CPUs that this process may use: by its affinity and the quotas of its
    control groups (versions 1 and 2), in whole CPUs, at least one.
    """
    quotas = [int(quota) for quota in _quotas(cgroups, own_cgroups)]
    return max(1, min([len(os.sched_getaffinity(0)), *quotas]))


def free_memory(
    meminfo: Path = MEMINFO, cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS
) -> int:
    """Return the bytes of memory that this process may still allocate: of the machine, and within
    the limits of its control groups (versions 1 and 2); 0 if they are unknown.
    """
    free = 0
    with suppress(OSError, ValueError, IndexError):
        free = 1024 * int(meminfo.read_text().split("MemAvailable:")[1].split()[0])
    return min([free, *_free_in_groups(cgroups, own_cgroups)])


def shorten_switch_interval() -> None:
    """Reduce the time for which a thread that runs Python may block the others, to less than a
    graph run.

    With Python's default of 5 ms, engines and a busy event loop wait for each other after every
    run: 32 users on 2 cores get a fifth fewer tokens per second.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)


def processor_name(cpuinfo: Path = CPUINFO) -> str:
    """Return the name of the processor; empty if it is unknown."""
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""


def instruction_sets(cpuinfo: Path = CPUINFO) -> tuple[str, ...]:
    """Return the processor's vector and matrix instruction sets, on which the rounding of graphs
    depends; empty if they are unknown.
    """
    with suppress(OSError):
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return tuple(sorted(filter(_IS_VECTORS.match, value.split())))
    return ()


def _quotas(cgroups: Path, own_cgroups: Path) -> Iterator[float]:
    """Yield the quotas, in CPUs, of all control groups of this process. In a container its group is
    often mounted as the root, independent of its path, so the root is always included.
    """
    for controllers, path in _memberships(own_cgroups):
        is_v2 = not controllers
        if is_v2 or "cpu" in controllers.split(","):
            for root in [cgroups] if is_v2 else [cgroups / controllers, cgroups / "cpu"]:
                for group in _with_parents(root, path):
                    quota = _quota_v2(group) if is_v2 else _quota_v1(group)
                    if quota is not None:
                        yield quota


def _memberships(own_cgroups: Path) -> list[tuple[str, str]]:
    """Return (controllers, path) of each hierarchy; version 2 has no controllers."""
    try:
        lines = own_cgroups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return [("", "/"), ("cpu", "/")]
    hierarchies = [line.split(":", 2) for line in lines]
    return [(fields[1], fields[2]) for fields in hierarchies if len(fields) == 3]


def _with_parents(root: Path, path: str) -> Iterator[Path]:
    inside = PurePosixPath(path.lstrip("/"))
    if ".." not in inside.parts:
        yield root / inside
        yield from (root / parent for parent in inside.parents)
    yield root


def _quota_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no such group, or "max": no quota
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
        return quota / period if quota > 0 else None  # -1 is no quota
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _free_in_groups(cgroups: Path, own_cgroups: Path) -> Iterator[int]:
    """Yield the bytes that each control group of this process has left. Cached files count as used,
    though they would make room.
    """
    names = {True: ("memory.max", "memory.current")}
    names[False] = ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for controllers, path in _memberships(own_cgroups):
        is_v2 = not controllers
        if is_v2 or "memory" in controllers.split(","):
            root = cgroups if is_v2 else cgroups / "memory"
            for group in _with_parents(root, path):
                with suppress(OSError, ValueError):  # no such group, or "max": no limit
                    limit, used = (int((group / name).read_text()) for name in names[is_v2])
                    yield max(0, limit - used)
