"""Run a server on this machine, or build an application for a Ray cluster.

`run` is what `attendant serve` does. On a Ray cluster or KubeRay each worker group is an
application of its own: its import path is `serving.app:build`, its arguments those of a
WorkerGroup.
"""

import os
import secrets
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from serving.deployments.console import console
from serving.deployments.environment import allowed_connections, environment, free_ports
from serving.deployments.haproxy import HAProxy, drain, haproxy
from serving.deployments.haproxy_config import Front, Served
from serving.deployments.listening import listening_at, operations_at
from serving.deployments.process_tree import ProcessWatch, ending_descendants
from serving.deployments.run_folder import run_folder, write_health_url
from serving.engine.runtime.machine import available_cpus
from serving.errors import AttendantError
from serving.server_config import ServerConfig, WorkerGroup
from serving.storage import default_state_dir

if TYPE_CHECKING:
    from ray.serve import Application

_READY_TIMEOUT_SECONDS = 60.0
_MAX_HAPROXY_THREADS = 4
_SPARE_PORTS = 4
_FEWEST_AT_ONCE = 256
_CERTIFICATE_SECONDS = 10.0  # how often to look for a new certificate


class Stopped(BaseException):
    """Raised on SIGINT or SIGTERM."""


def build(group: WorkerGroup) -> "Application":
    """Return the application of a group, for `serve deploy` and KubeRay."""
    from serving.deployments.group import application_of

    return application_of(group)


def run(config: ServerConfig, announce: Callable[[Front], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and end every process that was started.

    announce: called once the server is ready. Raises AttendantError, or its subclass PartEnded
    where starting again helps.
    """
    front = _front(config)
    with _stopped_by_signals(), suppress(Stopped), run_folder() as folder, ending_descendants():
        _ensure_working_directory_exists(folder)
        os.environ.pop("RAY_ADDRESS", None)  # the address of another Ray
        os.environ.update(environment(folder, front.ports, front.metrics_port))
        write_health_url(folder, f"{front.operations.url}/health")
        with haproxy(front, folder) as proxy, console(folder):
            _serve(config, front, proxy, partial(announce, front))


def _serve(
    config: ServerConfig, front: Front, proxy: HAProxy, announce: Callable[[], None]
) -> None:
    from serving.deployments.local_ray import deploy, end_requests, local_ray

    state_dir = Path.cwd() / (config.state_dir or default_state_dir())
    of_server = {"access": config.access.beneath(Path.cwd()), "state_dir": state_dir}
    with local_ray(config):
        for group, served in zip(config.groups, front.groups, strict=True):
            deploy(group.model_copy(update=of_server), served.application, served.prefix)
        _wait_until_ready(front.operations.url)
        announce()
        try:
            _watch(proxy)
        except Stopped:
            drain(proxy, config.drain_seconds, partial(end_requests, front.applications))
            raise


def _watch(proxy: HAProxy) -> None:
    """Wait for a signal. Restart HAProxy when it ends; raise PartEnded when a process of Ray ends
    that it cannot run without.
    """
    from serving.deployments.local_ray import essential_processes, part_ended

    watch = ProcessWatch()

    def restart() -> None:
        proxy.start()
        watch.add(proxy.pid, restart)

    def give_up(name: str, pid: int) -> None:
        _ignore_signals()
        raise part_ended(name, pid)

    watch.add(proxy.pid, restart)
    for name, pid in essential_processes().items():
        watch.add(pid, partial(give_up, name, pid))
    watch.run(proxy.renew_certificate, _CERTIFICATE_SECONDS)


def _front(config: ServerConfig) -> Front:
    """Return the addresses: the first group answers at `/`, the others below their names."""
    scheme = "https" if config.tls else "http"
    public = replace(listening_at(config.host, config.port), scheme=scheme)
    run_id = secrets.token_hex(4)
    # A replica that is being replaced has two ports.
    ports = free_ports(2 * sum(group.max_replicas for group in config.groups) + _SPARE_PORTS)
    prefixes = ["", *(f"/groups/{group.name}" for group in config.groups[1:])]
    return Front(
        public=public,
        operations=operations_at(config.host, config.operations_port, public),
        connections=allowed_connections(),
        threads=min(_MAX_HAPROXY_THREADS, available_cpus()),
        ports=ports[:-1],
        metrics_port=ports[-1],
        groups=tuple(
            Served(
                group.name,
                f"{group.name}-{run_id}",
                prefix,
                group.canary_percent or 0,
                _most_at_once(group),
            )
            for group, prefix in zip(config.groups, prefixes, strict=True)
        ),
        tls=config.tls and config.tls.beneath(Path.cwd()),
    )


def _most_at_once(group: WorkerGroup) -> int:
    """Return how many requests a replica gets at once: twice those that its engines can have rows
    for. More would wait unread, and their clients would be told later that they must try again.
    """
    cpus = group.cpus_per_replica or available_cpus()
    return max(_FEWEST_AT_ONCE, 2 * group.slots * len(group.bundles) * cpus)


def _ensure_working_directory_exists(folder: Path) -> None:
    """Change to `folder` if the working directory was removed: Ray would not start in it."""
    try:
        os.getcwd()
    except OSError:
        os.chdir(folder)


def _wait_until_ready(url: str) -> None:
    """Wait until HAProxy has found the replicas, a moment after they run."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is this machine
    deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError, OSError):
            opener.open(f"{url}/ready", timeout=5).close()
            return
        time.sleep(0.05)
    raise AttendantError(f"{url} did not answer within {_READY_TIMEOUT_SECONDS:.0f} s")


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Raise Stopped in this thread on SIGINT or SIGTERM, once."""

    def stop(number: int, frame: FrameType | None) -> Any:
        _ignore_signals()  # later ones must not interrupt the draining
        raise Stopped

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
