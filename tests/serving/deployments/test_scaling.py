"""How many replicas a group asks for, as Ray Serve's autoscaler takes it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serving.deployments.group import WaitingTokens, replicas_of
from serving.deployments.replica import load_of
from serving.engine.measures import EngineStats
from serving.server_config import WorkerGroup

pytestmark = pytest.mark.servers

BUNDLES = (Path("a"),)


def stats(rows: int, tokens: int) -> EngineStats:
    return EngineStats(
        num_waiting=0, num_rows=rows, num_slots=8, kv_bytes=0, num_waiting_tokens=tokens
    )


def asked_for(*replicas: list[EngineStats]) -> float:
    loads = [load_of(models) for models in replicas]
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
