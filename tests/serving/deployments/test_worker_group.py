"""Tests what a worker group's configuration comes to on a machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.deployments import worker_group
from serving.deployments.replica import (
    autoscaling_load,
    cpu_budget_of_group,
    engine_config_of_group,
)
from serving.deployments.worker_group import WaitingTokens, cpus_per_replica, replicas_of
from serving.engine.runtime.planning import ExecutionPlan
from serving.engine.stats import EngineStats
from serving.server_config import WorkerGroup

BUNDLES = (Path("a"),)


@pytest.mark.parametrize(
    ("num_cpus", "replicas", "given", "cpus"),
    [(1, 1, None, 1), (2, 1, None, 2), (2, 4, None, 1), (64, 3, None, 21), (8, 1, 2, 2)],
)
def test_replicas_share_the_cpus_unless_they_were_given_some(
    num_cpus: int, replicas: int, given: int | None, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_group, "available_cpus", lambda: num_cpus)
    group = WorkerGroup(bundles=(Path("a"),), replicas=replicas, cpus_per_replica=given)
    assert cpus_per_replica(group) == cpus


def test_a_plan_that_was_given_reaches_every_model() -> None:
    group = WorkerGroup(bundles=(Path("a"),), engines=3)
    assert cpu_budget_of_group(group, 6).given_plan == ExecutionPlan(3, 2)
    assert cpu_budget_of_group(WorkerGroup(bundles=(Path("a"),)), 6).given_plan is None


def test_a_group_without_bundles_has_a_configuration_and_no_load() -> None:
    """Ray Serve asks for the load before the first model is loaded, and after the last is gone."""
    empty = WorkerGroup.model_construct(**{**dict(WorkerGroup(bundles=BUNDLES)), "bundles": ()})
    assert engine_config_of_group(empty, threads=2).device_share == 1
    assert autoscaling_load([]) == {"attendant_rows_in_use": 0, "attendant_waiting_tokens": 0}


def test_sizes_reach_the_engine() -> None:
    group = WorkerGroup(
        bundles=(Path("a"),), slots=5, max_step_tokens=99, prefix_cache_mib=3, encoder_cache_mib=0
    )
    config = engine_config_of_group(group, threads=2)
    assert (config.slots, config.threads, config.max_step_tokens) == (5, 2, 99)
    assert (config.prefix_cache_bytes, config.encoder_cache_bytes) == (3 * 2**20, 0)


def stats(rows: int, tokens: int) -> EngineStats:
    return EngineStats(
        num_waiting=0, num_rows=rows, num_slots=8, kv_bytes=0, num_waiting_tokens=tokens
    )


def asked_for(*replicas: list[EngineStats]) -> float:
    loads = [autoscaling_load(models) for models in replicas]
    metrics = {name: {number: each[name] for number, each in enumerate(loads)} for name in loads[0]}
    context: Any = SimpleNamespace(aggregated_metrics=metrics)
    return WaitingTokens(100)(context)[0]


@pytest.mark.parametrize(
    ("replicas", "wanted"),
    [
        ([[stats(0, 0)]], 0),
        ([[stats(8, 0)]], 1),
        ([[stats(8, 250)]], 3.5),
        ([[stats(8, 0)], [stats(4, 0)], [stats(0, 0)]], 1.5),
        ([[stats(2, 0), stats(8, 50)]], 1.5),
    ],
)
def test_rows_in_use_and_waiting_tokens_call_for_replicas(replicas: Any, wanted: float) -> None:
    assert asked_for(*replicas) == wanted


def test_before_any_replica_has_told_its_load_none_is_asked_for() -> None:
    nothing: Any = SimpleNamespace(aggregated_metrics=None)
    assert WaitingTokens(100)(nothing)[0] == 0


def test_serve_gets_the_bounds_and_the_policy_by_its_name() -> None:
    scaling: Any = {"min_replicas": 2, "max_replicas": 5, "queued_tokens": 700}
    config = replicas_of(WorkerGroup(bundles=BUNDLES, autoscaling=scaling))["autoscaling_config"]
    assert (config.min_replicas, config.max_replicas) == (2, 5)
    policy = config.policy.get_policy()(**config.policy.policy_kwargs)
    assert policy.__class__.__name__ == "WaitingTokens"


def test_without_autoscaling_the_number_is_fixed() -> None:
    assert replicas_of(WorkerGroup(bundles=BUNDLES, replicas=3)) == {"num_replicas": 3}
