"""A worker group as a Ray Serve application, and how it is deployed.

Ray Serve is imported when it is needed: Ray starts before that.
"""

from typing import TYPE_CHECKING, Any

from serving.deployments.worker_group import (
    DEPLOYMENT,
    cpus_per_replica,
    gpus_per_replica,
    replicas_of,
)
from serving.errors import AttendantError
from serving.server_config import WorkerGroup

if TYPE_CHECKING:
    from ray.serve import Application

# Named, not imported: only replicas need what it needs.
_REPLICA = "serving.deployments.replica.Replica"
_SPARE_REQUESTS = 256  # for /health and /metrics, and so that the engine answers 429, not Ray
_VERSION = "of this run"
_HEALTH_CHECK_SECONDS = 1.0  # how soon a killed replica is noticed
_POLL_SECONDS = 0.1


def application_of(group: WorkerGroup, prefix: str = "") -> "Application":
    """Return the application of a group. prefix: the beginning of its paths.

    The version never changes: so Ray Serve gives new bundles to running replicas instead of
    replacing them (`Replica.reconfigure`). Serve has no public option for the version.
    """
    from ray import serve

    cpus = cpus_per_replica(group)
    num_requests = len(group.bundles) * (group.slots + group.max_waiting) + _SPARE_REQUESTS
    deployment: Any = serve.deployment(
        name=DEPLOYMENT,
        **replicas_of(group),
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus_per_replica(group)},
        max_ongoing_requests=num_requests,
        graceful_shutdown_timeout_s=group.drain_seconds,
        health_check_period_s=_HEALTH_CHECK_SECONDS,
        user_config={"bundles": [str(path) for path in group.bundles]},
        # Ray Serve writes a line for each request otherwise, even where nobody sees it.
        logging_config={"log_level": "ERROR", "enable_access_log": False},
    )
    deployment = deployment(_REPLICA).options(version=_VERSION, _internal=True)
    application: Application = deployment.bind(group, cpus, prefix, deploy)
    return application


def deploy(group: WorkerGroup, application: str, prefix: str) -> None:
    """Return once all replicas of the group run. Raises AttendantError."""
    from ray import serve
    from ray.serve._private import client

    client.CLIENT_POLLING_INTERVAL_S = _POLL_SECONDS  # 1 s, without an option
    try:
        serve.run(application_of(group, prefix), name=application, route_prefix=prefix or "/")
    except RuntimeError as error:
        raise AttendantError(f"group {group.name} did not start: {_cause(application)}") from error


def _cause(application: str) -> str:
    """Return the last line of what a replica raised, as Ray Serve reports it."""
    from ray import serve

    status = serve.status().applications[application]
    messages = [deployment.message for deployment in status.deployments.values()]
    lines = "\n".join([status.message, *messages]).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"
