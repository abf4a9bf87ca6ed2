"""The environment variables of a Ray that serves on this machine only, and the machine's limits."""

import os
import random
import resource
import socket
from pathlib import Path

from serving.deployments.metrics import METRICS_FOLDER, PROXY_METRICS_PORT
from serving.deployments.run_folder import write_token
from serving.errors import AttendantError

CONTROLLER_CALLBACK = "serving.deployments.ray_processes:prepare_controller"
CHANGES_LOCK = "ATTENDANT_CHANGES_LOCK"
MAX_CONNECTIONS = 4096
OBJECT_STORE_BYTES = 128 * 2**20  # requests and answers only; weights never go through it
MAX_MESSAGE_BYTES = 2**31 - 1  # between replicas: gRPC has no larger limit
_MIN_CONNECTIONS = 100
_LEAST_PORT, _MOST_PORT, _MAX_TRIES = 20_000, 32_000, 100
_FILES_PER_CONNECTION = 2  # in HAProxy: one to the client, one to the replica
_OTHER_FILES = 448  # operations, listeners and checks in HAProxy; models and Ray in a replica


def environment(folder: Path, ports: range, metrics_port: int) -> dict[str, str]:
    """Return the environment, to be set before Ray is imported. The user's variables win over our
    defaults, but not over what the server needs.

    ports: reserved for replicas. metrics_port: where HAProxy reports its metrics.
    """
    variables = {
        METRICS_FOLDER: str(folder / "metrics"),
        PROXY_METRICS_PORT: str(metrics_port),
        CHANGES_LOCK: str(folder / "changes.lock"),
    }
    return {**_defaults(folder), **os.environ, **_necessities(folder, ports), **variables}


def free_ports(count: int) -> range:
    """Return free adjacent ports of this machine, below those that the system gives to clients."""
    for _ in range(_MAX_TRIES):
        first = random.randrange(_LEAST_PORT, _MOST_PORT - count)
        if all(map(_is_free, range(first, first + count))):
            return range(first, first + count)
    raise AttendantError(f"{count} free ports side by side are not to be found on this machine")


def allowed_connections() -> int:
    """Return how many connections there may be at once, given the limit on open files.

    Only the hard limit counts: Ray and HAProxy raise the soft limit themselves.
    """
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    connections = (files - _OTHER_FILES) // _FILES_PER_CONNECTION
    if connections < _MIN_CONNECTIONS:
        least = _OTHER_FILES + _MIN_CONNECTIONS * _FILES_PER_CONNECTION
        raise AttendantError(
            f"a process may open no more than {files} files here, which are too few: "
            f"raise the limit to {least} or, better, to 16384 (ulimit -Hn)"
        )
    return min(MAX_CONNECTIONS, connections)


def _necessities(folder: Path, ports: range) -> dict[str, str]:
    """Return what the processes of one run need to find each other."""
    return {
        # We run HAProxy ourselves, and it connects to replicas directly.
        "RAY_SERVE_ENABLE_HA_PROXY": "0",
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(ports.start),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(ports.stop),
        "RAY_SERVE_PORT_QUARANTINE_S": "0",  # HAProxy checks the ports
        # All processes of Ray then use the loopback address.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        # Under `uv run` Ray would build an environment of its own for the workers.
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_TMPDIR": str(folder),  # Ray makes a folder `ray` in it
    }


def _defaults(folder: Path) -> dict[str, str]:
    return {
        # Ray's default is a file in the home folder that everyone may read.
        "RAY_AUTH_TOKEN_PATH": str(write_token(folder)),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        # Samples are sent to the group of a model: an hour has 115 MB, and Ray's default is 4 MiB.
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(MAX_MESSAGE_BYTES),
        "RAY_SERVE_CONTROLLER_CALLBACK_IMPORT_PATH": CONTROLLER_CALLBACK,
        "RAY_preload_python_modules": "serving.deployments.worker_imports",
        "RAY_idle_worker_killing_time_threshold_ms": "60000",
        # On one machine nothing has to be notified before a replica ends.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        # A busy machine starts processes slowly; they must not be restarted for it.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
        # Ray's default of 15 would make replicas wait for all other processes.
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's processes look and report as often as a cluster of many machines needs it; nobody
        # reads most of it here. With these an idle server takes two fifths less of a processor.
        "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
        "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "10000",
        "RAY_enable_metrics_collection": "0",
        "RAY_raylet_report_resources_period_milliseconds": "1000",
        "RAY_gcs_pull_resource_loads_period_milliseconds": "10000",
        "RAY_task_events_report_interval_ms": "0",
        "RAY_event_stats": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
