"""What a worker group is for Ray Serve: its deployment's name, CPUs, GPUs and number of replicas.

Ray Serve asks each replica for its load, sums it up, and calls the policy here. It is imported when
it is needed: Ray starts before that.
"""

from typing import TYPE_CHECKING, Any

from serving.engine.runtime.machine import available_cpus
from serving.server_config import WorkerGroup

if TYPE_CHECKING:
    from ray.serve.config import AutoscalingContext

DEPLOYMENT = "attendant"
ROWS_IN_USE, WAITING_TOKENS = "attendant_rows_in_use", "attendant_waiting_tokens"
_UPSCALE_SECONDS = 10.0  # a new replica takes some seconds to load; the queue grows meanwhile
_DOWNSCALE_SECONDS = 300.0  # a pause between two waves of requests costs no replica
_LOOK_BACK_SECONDS = 15.0  # one long batch of requests is no trend


def cpus_per_replica(group: WorkerGroup) -> int:
    """Return the CPUs of a replica; by default replicas share those that this process may use."""
    return group.cpus_per_replica or max(1, available_cpus() // group.max_replicas)


def gpus_per_replica(group: WorkerGroup) -> float:
    if group.gpus_per_replica is not None:
        return group.gpus_per_replica
    return 1 if group.device == "cuda" else 0


class WaitingTokens:
    """An autoscaling policy: one replica for each full batch of rows in use, and one more for every
    `tokens_per_replica` waiting tokens.
    """

    def __init__(self, tokens_per_replica: int) -> None:
        self._tokens_per_replica = tokens_per_replica

    def __call__(self, context: "AutoscalingContext") -> tuple[float, dict[str, Any]]:
        loads = context.aggregated_metrics or {}
        rows = sum(loads.get(ROWS_IN_USE, {}).values())
        tokens = sum(loads.get(WAITING_TOKENS, {}).values())
        return rows + tokens / self._tokens_per_replica, {}


def replicas_of(group: WorkerGroup) -> dict[str, Any]:
    """Return the options of a Serve deployment that say how many replicas it has."""
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    scaling = group.autoscaling
    if scaling is None:
        return {"num_replicas": group.replicas}
    policy = AutoscalingPolicy(
        policy_function="serving.deployments.worker_group:WaitingTokens",
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
