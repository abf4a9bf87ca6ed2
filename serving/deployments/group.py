"""Makes a worker group a Ray Serve application."""

from typing import Any

from ray import serve
from ray.serve import Application

from serving.deployments.forwarding import DEPLOYMENT
from serving.deployments.replica import Replica
from serving.deployments.scaling import replicas_of
from serving.engine.runtime.machine import available_cpus
from serving.server_config import WorkerGroup

_SPARE_REQUESTS = 256  # for /health and /metrics, and to be told 429 by the engine, not by Ray
_GRACE_SECONDS = 30.0
_VERSION = "of this run"
_HEALTH_CHECK_SECONDS = 1.0  # so soon a replica that was killed is missed


def application_of(group: WorkerGroup, prefix: str = "") -> Application:
    """Make the application of a group. prefix: of its paths, which it needs to deploy itself again.

    Its code is of one version always: so replicas that run are told which bundles they are to have,
    instead of being replaced (`Replica.reconfigure`).
    """
    cpus = cpus_per_replica(group)
    num_requests = len(group.bundles) * (group.slots + group.max_waiting) + _SPARE_REQUESTS
    deployment: Any = serve.deployment(
        Replica,
        name=DEPLOYMENT,
        **replicas_of(group),
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus_per_replica(group)},
        max_ongoing_requests=num_requests,
        graceful_shutdown_timeout_s=_GRACE_SECONDS,
        health_check_period_s=_HEALTH_CHECK_SECONDS,
        user_config={"bundles": [str(path) for path in group.bundles]},
    )
    deployment = deployment.options(version=_VERSION, _internal=True)
    application: Application = deployment.bind(group, cpus, prefix)
    return application


def cpus_per_replica(group: WorkerGroup) -> int:
    """Unless told, replicas share the CPUs that this process may use, HTTP included."""
    return group.cpus_per_replica or max(1, available_cpus() // group.max_replicas)


def gpus_per_replica(group: WorkerGroup) -> float:
    if group.gpus_per_replica is not None:
        return group.gpus_per_replica
    return 1 if group.device == "cuda" else 0
