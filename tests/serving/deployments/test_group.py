"""Tests what a worker group's configuration comes to on a machine."""

from pathlib import Path

import pytest

from serving.deployments import group as group_module
from serving.deployments.group import cpus_per_replica
from serving.deployments.replica import allowance_of, engine_config
from serving.engine.runtime.plan import Plan
from serving.server_config import WorkerGroup


@pytest.mark.parametrize(
    ("num_cpus", "replicas", "given", "cpus"),
    [(1, 1, None, 1), (2, 1, None, 2), (2, 4, None, 1), (64, 3, None, 21), (8, 1, 2, 2)],
)
def test_replicas_share_the_cpus_unless_they_were_given_some(
    num_cpus: int, replicas: int, given: int | None, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "available_cpus", lambda: num_cpus)
    group = WorkerGroup(bundles=(Path("a"),), replicas=replicas, cpus_per_replica=given)
    assert cpus_per_replica(group) == cpus


def test_a_plan_that_was_given_reaches_every_model() -> None:
    group = WorkerGroup(bundles=(Path("a"),), engines=3)
    assert allowance_of(group, 6).given == Plan(3, 2)
    assert allowance_of(WorkerGroup(bundles=(Path("a"),)), 6).given is None


def test_sizes_reach_the_engine() -> None:
    group = WorkerGroup(
        bundles=(Path("a"),), slots=5, max_step_tokens=99, prefix_cache_mib=3, encoder_cache_mib=0
    )
    assert not engine_config(group, threads=2).speculation
    assert engine_config(group.model_copy(update={"speculation": True}), threads=2).speculation
    config = engine_config(group, threads=2)
    assert (config.slots, config.threads, config.max_step_tokens) == (5, 2, 99)
    assert (config.prefix_cache_bytes, config.encoder_cache_bytes) == (3 * 2**20, 0)
