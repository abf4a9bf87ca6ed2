"""What a worker group's configuration comes to on a machine."""

from pathlib import Path

import pytest

from serving.deployments import group as group_module
from serving.deployments.group import cpus_per_replica, engines_at_once
from serving.deployments.replica import engine_config
from serving.server_config import WorkerGroup


@pytest.mark.parametrize(
    ("num_cpus", "replicas", "given", "threads", "at_once"),
    [
        (1, 1, None, 1, 1),
        (2, 1, None, 1, 2),
        (8, 1, None, 7, 1),
        (8, 4, None, 1, 2),
        (8, 1, 2, 2, 1),
    ],
)
def test_engines_fill_the_cpus_they_share_and_no_more_than_they_were_given(
    num_cpus: int,
    replicas: int,
    given: int | None,
    threads: int,
    at_once: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_module, "available_cpus", lambda: num_cpus)
    group = WorkerGroup(bundles=(Path("a"),), replicas=replicas, cpus_per_replica=given)
    assert cpus_per_replica(group) == threads
    assert engines_at_once(group) == at_once


def test_sizes_reach_the_engine() -> None:
    group = WorkerGroup(
        bundles=(Path("a"),), slots=5, max_step_tokens=99, prefix_cache_mib=3, encoder_cache_mib=0
    )
    config = engine_config(group, threads=2)
    assert (config.slots, config.threads, config.max_step_tokens) == (5, 2, 99)
    assert (config.prefix_cache_bytes, config.encoder_cache_bytes) == (3 * 2**20, 0)
