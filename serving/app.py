"""Run a server on this machine, or build an application for a Ray cluster.

`run` is what `attendant serve` does. On a Ray cluster or KubeRay each worker group is an
application of its own: its import path is `serving.app:build`, its arguments those of a
WorkerGroup.
"""

import gc
import os
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from serving.deployments.console import console
from serving.deployments.environment import allowed_connections, environment, free_ports
from serving.deployments.haproxy import HAProxy, drain, haproxy
from serving.deployments.haproxy_config import Front, ServedGroup
from serving.deployments.listening import listening_at, operations_at
from serving.deployments.process_tree import ProcessWatch, ending_descendants
from serving.deployments.progress import StartProgress
from serving.deployments.run_folder import run_folder, write_health_url
from serving.deployments.stop_signals import Stopped, StopSignals
from serving.engine.runtime.machine import available_cpus
from serving.errors import AttendantError, PartEnded
from serving.server_config import ServerConfig, WorkerGroup
from serving.storage.opening import STATE_VARIABLE, default_state_folder, place_beneath

if TYPE_CHECKING:
    from ray.serve import Application

_OF_ANOTHER_RAY = ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR")
_READY_TIMEOUT_SECONDS = 60.0
_MAX_HAPROXY_THREADS = 4  # it only passes bytes on; more threads would take CPUs from engines
_SPARE_PORTS = (
    4  # beside two for each replica: one that is replaced ends after its successor starts
)
_FEWEST_AT_ONCE = 256
_CERTIFICATE_SECONDS = 10.0  # how often to look for a new certificate


def build(group: WorkerGroup) -> "Application":
    """Return the application of a group, for `serve deploy` and KubeRay."""
    from serving.deployments.application import application_of

    return application_of(group)


def run(config: ServerConfig, announce: Callable[[Front], None], progress: StartProgress) -> None:
    """Serve until a signal asks to stop, then drain and end every process that was started.

    announce: called once the server is ready. progress: shows what it waits for until then.
    Raises Stopped if it was stopped before that;
    AttendantError, or its subclass PartEnded where starting again helps.
    """
    signals = StopSignals()
    front = _front(config)
    try:
        with run_folder() as folder, ending_descendants():
            _ensure_working_directory_exists(folder)
            for name in _OF_ANOTHER_RAY:
                os.environ.pop(name, None)
            os.environ.update(environment(folder, front.ports, front.metrics_port))
            # Not by arguments, which Ray would store: a URL has a password.
            place = config.state or str(default_state_folder())
            os.environ[STATE_VARIABLE] = place_beneath(Path.cwd(), place)
            write_health_url(folder, f"{front.operations.url}/health")
            with haproxy(front, folder) as proxy, console(folder, progress.write_line):
                _serve(config, front, proxy, signals, partial(announce, front), progress)
    except Exception:
        signals.raise_stopped()  # a process that has just been started may have ended by it
        raise


def _serve(
    config: ServerConfig,
    front: Front,
    proxy: HAProxy,
    signals: StopSignals,
    announce: Callable[[], None],
    progress: StartProgress,
) -> None:
    """Start all groups, admit requests, and drain when a signal asks to stop.

    No request is admitted before all groups are ready and this waits to drain.
    """
    gc.disable()  # as in `worker_imports`
    with ExitStack() as running:
        with progress.step("Starting Ray"):
            from serving.deployments.local_ray import (
                end_requests,
                essential_processes,
                in_thread,
                local_ray,
            )

            running.enter_context(local_ray(config))
        watch = _watch(proxy, essential_processes(), signals)
        started = in_thread(partial(_start_groups, config, front, proxy, progress))
        try:
            watch.run(proxy.renew_certificate, _CERTIFICATE_SECONDS, until=started)
            started.result()
        finally:
            progress.end()
        gc.enable()
        try:
            proxy.admit()
            announce()
            watch.run(proxy.renew_certificate, _CERTIFICATE_SECONDS)
        except PartEnded:
            raise  # and with it its replicas
        except BaseException as error:
            drain(proxy, config.drain_seconds, partial(end_requests, front.applications))
            if not isinstance(error, Stopped):
                raise


def _start_groups(
    config: ServerConfig, front: Front, proxy: HAProxy, progress: StartProgress
) -> None:
    """Return once HAProxy has found a ready replica of each group. Raises AttendantError."""
    from serving.deployments.application import deploy
    from serving.deployments.local_ray import start_serve

    access = config.access.beneath(Path.cwd())
    of_server = {"access": access, "drain_seconds": config.drain_seconds}
    with progress.step("Starting Ray Serve"):
        start_serve()
    for group, served in zip(config.groups, front.groups, strict=True):
        with progress.step(_loading(group)):
            deploy(group.model_copy(update=of_server), served.application, served.prefix)
    deadline = time.monotonic() + _READY_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError):  # HAProxy is being started again
            if proxy.finds_all_groups():
                return
        time.sleep(0.05)
    raise AttendantError(f"HAProxy found no replicas within {_READY_TIMEOUT_SECONDS:.0f} s")


def _loading(group: WorkerGroup) -> str:
    names = ", ".join(folder.name for folder in group.bundles)
    return (
        f"Loading {names}"
        if len(group.bundles) == 1
        else f"Loading {len(group.bundles)} models: {names}"
    )


def _watch(proxy: HAProxy, essential: dict[str, int], signals: StopSignals) -> ProcessWatch:
    """Return what waits for a signal, and raises Stopped then. It restarts HAProxy when that ends,
    and raises PartEnded when a process of Ray ends that it cannot run without.
    """
    from serving.deployments.local_ray import part_ended

    watch = ProcessWatch()

    def restart() -> None:
        proxy.start()
        watch.add(proxy.pid, restart)

    def give_up(name: str, pid: int) -> None:
        raise part_ended(name, pid)

    watch.add_file(signals, signals.raise_stopped)
    watch.add(proxy.pid, restart)
    for name, pid in essential.items():
        watch.add(pid, partial(give_up, name, pid))
    return watch


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
            ServedGroup(
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
