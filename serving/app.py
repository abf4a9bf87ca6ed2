"""Ray and Ray Serve: a server on this machine, or an application for a cluster.

`run` is what `attendant serve` does. On a Ray cluster or KubeRay each worker group is an
application of its own: import path `serving.app:build`, its arguments those of a WorkerGroup.
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
from serving.deployments.process_tree import Watch, family
from serving.deployments.run_folder import scratch_folder
from serving.deployments.supervision.service_manager import ServiceManager
from serving.engine.runtime.machine import available_cpus
from serving.errors import AttendantError
from serving.server_config import ServerConfig, WorkerGroup
from serving.storage import default_state_dir

if TYPE_CHECKING:
    from ray.serve import Application

_READY_TIMEOUT_SECONDS = 60.0
_MAX_HAPROXY_THREADS = 4
_SPARE_PORTS = 4
_BEAT_SECONDS = 10.0  # at least so often it is looked for a new certificate


class Stopped(BaseException):
    """SIGINT or SIGTERM."""


def build(group: WorkerGroup) -> "Application":
    """Return the application of a group, for `serve deploy` and KubeRay."""
    from serving.deployments.group import application_of

    return application_of(group)


def run(config: ServerConfig, announce: Callable[[Front], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and leave nothing behind. Raises AttendantError;
    PartEnded where a new start helps.
    """
    manager = ServiceManager()
    front = _front(config)
    with _stopped_by_signals(), suppress(Stopped), scratch_folder() as folder, family():
        _stand_somewhere(folder)
        os.environ.pop("RAY_ADDRESS", None)  # of another Ray, which has no part in this
        os.environ.update(environment(folder, front.ports, front.metrics_port))
        with haproxy(front, folder) as proxy, console(folder):
            _serve(config, front, proxy, manager, folder, partial(announce, front))


def _serve(
    config: ServerConfig,
    front: Front,
    proxy: HAProxy,
    manager: ServiceManager,
    folder: Path,
    announce: Callable[[], None],
) -> None:
    from serving.deployments.local_ray import deploy, end_requests, ray_here

    state_dir = Path.cwd() / (config.state_dir or default_state_dir())
    of_all = {"access": config.access.beneath(Path.cwd()), "state_dir": state_dir}
    with ray_here(config, folder):
        for group, served in zip(config.groups, front.groups, strict=True):
            told = group.model_copy(update=of_all)
            deploy(told, served.application, served.prefix)
        _wait_until_ready(front.operations.url)
        announce()
        manager.tell("READY=1")
        try:
            _watch(proxy, manager)
        except Stopped:
            manager.tell("STOPPING=1")
            drain(proxy, config.drain_seconds, partial(end_requests, front.applications))
            raise


def _watch(proxy: HAProxy, manager: ServiceManager) -> None:
    """Until a signal comes, or a part ends without which there is no Ray."""
    from serving.deployments.local_ray import essential_processes, part_ended

    watch = Watch()

    def start_again() -> None:
        proxy.start()
        watch.add(proxy.pid, start_again)

    def give_up(name: str) -> None:
        _ignore_signals()
        raise part_ended(name, processes[name])

    def beat() -> None:
        manager.tell("WATCHDOG=1")
        proxy.renew_certificate()

    processes = essential_processes()
    watch.add(proxy.pid, start_again)
    for name, process in processes.items():
        watch.add(process.pid, partial(give_up, name))
    watch.run(beat, min(manager.heartbeat_seconds or _BEAT_SECONDS, _BEAT_SECONDS))


def _front(config: ServerConfig) -> Front:
    """Say where the first group answers, at `/`, and the others, beneath their names."""
    scheme = "https" if config.tls else "http"
    public = replace(listening_at(config.host, config.port), scheme=scheme)
    run_id = secrets.token_hex(4)
    # While one is replaced, a replica has two.
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
            Served(group.name, f"{group.name}-{run_id}", prefix, group.canary_percent or 0)
            for group, prefix in zip(config.groups, prefixes, strict=True)
        ),
        tls=config.tls and config.tls.beneath(Path.cwd()),
    )


def _stand_somewhere(folder: Path) -> None:
    """Ray does not start in a working folder that has been removed."""
    try:
        os.getcwd()
    except OSError:
        os.chdir(folder)


def _wait_until_ready(url: str) -> None:
    """Wait for HAProxy, which learns of a replica a moment after it runs."""
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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    _stop_on_signals()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_on_signals() -> None:
    def stop(number: int, frame: FrameType | None) -> Any:
        _ignore_signals()  # one is enough: what follows is to end in its own time
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
