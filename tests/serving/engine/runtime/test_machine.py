"""How many CPUs there are to use, whatever control groups say and in which version."""

import os
from pathlib import Path

import pytest

from serving.engine.runtime import machine
from serving.engine.runtime.machine import available_cpus, free_memory, processor_name


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(64)))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def available(folder: Path) -> int:
    return available_cpus(folder / "cgroup", folder / "own")


def test_without_control_groups_affinity_counts(tmp_path: Path) -> None:
    assert available(tmp_path) == 64


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("250000 100000\n", 2),
        ("6400000 50000\n", 64),
        ("max 100000\n", 64),
        ("10 one\n", 64),
        ("10 0\n", 64),
    ],
)
def test_a_quota_of_version_2_bounds_them(text: str, expected: int, tmp_path: Path) -> None:
    write(tmp_path / "cgroup/cpu.max", text)
    assert available(tmp_path) == expected


def test_quotas_of_parents_bound_them_too(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/system.slice/attendant.service\n")
    write(tmp_path / "cgroup/system.slice/attendant.service/cpu.max", "800000 100000\n")
    assert available(tmp_path) == 8
    write(tmp_path / "cgroup/system.slice/cpu.max", "300000 100000\n")
    assert available(tmp_path) == 3


def test_a_container_sees_its_group_as_the_root(tmp_path: Path) -> None:
    write(tmp_path / "own", "0::/../../elsewhere\n")
    write(tmp_path / "cgroup/cpu.max", "400000 100000\n")
    assert available(tmp_path) == 4


@pytest.mark.parametrize("mounted_as", ["cpu,cpuacct", "cpu"])
def test_a_quota_of_version_1_bounds_them(mounted_as: str, tmp_path: Path) -> None:
    write(tmp_path / "own", "4:memory:/docker/a1\n3:cpu,cpuacct:/docker/a1\n")
    write(tmp_path / f"cgroup/{mounted_as}/docker/a1/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / f"cgroup/{mounted_as}/docker/a1/cpu.cfs_period_us", "100000\n")
    assert available(tmp_path) == 64
    write(tmp_path / f"cgroup/{mounted_as}/docker/a1/cpu.cfs_quota_us", "150000\n")
    assert available(tmp_path) == 1
    write(tmp_path / f"cgroup/{mounted_as}/docker/a1/cpu.cfs_quota_us", "700000\n")
    assert available(tmp_path) == 7


def test_affinity_bounds_a_larger_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "cgroup/cpu.max", "800000 100000\n")
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 3})
    assert available(tmp_path) == 2


def test_a_processor_has_a_name_where_the_kernel_tells_it(tmp_path: Path) -> None:
    write(
        tmp_path / "cpuinfo", "processor\t: 0\nmodel name\t: Nonsense 9000 @ 3GHz\nflags\t: a b\n"
    )
    assert processor_name(tmp_path / "cpuinfo") == "Nonsense 9000 @ 3GHz"
    assert processor_name(tmp_path / "missing") == ""


def test_this_machine_has_at_least_one() -> None:
    assert 1 <= available_cpus() <= (os.cpu_count() or 1) + 63


def test_free_memory_is_that_of_the_machine_and_of_control_groups(tmp_path: Path) -> None:
    meminfo, cgroups, own = (tmp_path / name for name in ("meminfo", "cgroup", "own"))
    assert free_memory(meminfo, cgroups, own) == 0
    write(meminfo, "MemTotal: 4000 kB\nMemAvailable:    3000 kB\n")
    assert free_memory(meminfo, cgroups, own) == 3000 * 1024
    write(own, "4:memory:/docker/a1\n0::/a2\n")
    write(cgroups / "a2/memory.max", "max\n")
    write(cgroups / "a2/memory.current", "5\n")
    assert free_memory(meminfo, cgroups, own) == 3000 * 1024
    write(cgroups / "memory/docker/a1/memory.limit_in_bytes", "2000000\n")
    write(cgroups / "memory/docker/a1/memory.usage_in_bytes", "500000\n")
    assert free_memory(meminfo, cgroups, own) == 1500000
    write(cgroups / "memory.max", "1000000\n")
    write(cgroups / "memory.current", "1000001\n")
    assert free_memory(meminfo, cgroups, own) == 0
