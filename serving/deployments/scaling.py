"""Decides how many replicas a group has: by the rows in use and the tokens that wait for one.

Ray Serve asks each replica for its load, sums it up, and asks the policy here; how fast it follows
is its own matter.
"""

from collections.abc import Sequence
from typing import Any

from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from serving.engine.measures import EngineStats
from serving.server_config import WorkerGroup

_ROWS, _TOKENS = "attendant_rows_in_use", "attendant_waiting_tokens"
_UPSCALE_SECONDS = 10.0
_DOWNSCALE_SECONDS = 300.0
_LOOK_BACK_SECONDS = 15.0


class WaitingTokens:
    """Asks for a replica for all rows in use, and for one more for so many tokens that wait.

    Replicas with nothing waiting whose rows are all in use are as many as are needed; with rows in
    use here and there fewer will do.
    """

    def __init__(self, tokens_per_replica: int) -> None:
        self._tokens_per_replica = tokens_per_replica

    def __call__(self, context: AutoscalingContext) -> tuple[float, dict[str, Any]]:
        loads = context.aggregated_metrics or {}
        rows = sum(loads.get(_ROWS, {}).values())
        tokens = sum(loads.get(_TOKENS, {}).values())
        return rows + tokens / self._tokens_per_replica, {}


def load_of(models: Sequence[EngineStats]) -> dict[str, float]:
    """Return the load of a replica. Its models share its processors, so the busiest one counts."""
    return {
        _ROWS: max(stats.num_rows / stats.num_slots for stats in models),
        _TOKENS: float(sum(stats.num_waiting_tokens for stats in models)),
    }


def replicas_of(group: WorkerGroup) -> dict[str, Any]:
    """Return the options of a Serve deployment that say how many replicas it has."""
    scaling = group.autoscaling
    if scaling is None:
        return {"num_replicas": group.replicas}
    policy = AutoscalingPolicy(
        policy_function="serving.deployments.scaling:WaitingTokens",
        policy_kwargs={"tokens_per_replica": scaling.queued_tokens},
    )
    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            upscale_delay_s=_UPSCALE_SECONDS,
            downscale_delay_s=_DOWNSCALE_SECONDS,
            look_back_period_s=_LOOK_BACK_SECONDS,
            policy=policy,
        )
    }
