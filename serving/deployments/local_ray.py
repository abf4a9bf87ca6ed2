"""Starts a Ray of our own for one run, and ends it whatever state it is in."""

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import ray
from ray import serve
from ray._private import worker

from serving.deployments.forwarding import ask_all
from serving.deployments.group import application_of, cpus_per_replica
from serving.deployments.run_folder import ray_folder
from serving.errors import AttendantError, PartEnded
from serving.server_config import ServerConfig, WorkerGroup

_OBJECT_STORE_BYTES = 128 * 2**20  # requests and answers only; weights never go through it
_SHUTDOWN_SECONDS = 8.0
_STOPPING = (signal.SIGINT, signal.SIGTERM)
# Without one of these there is no Ray; its other processes only tell how it is.
_ESSENTIAL = ("gcs_server", "raylet")


@contextmanager
def ray_here(config: ServerConfig, folder: Path) -> Iterator[None]:
    """Run Ray for as long as the block runs, and Serve without any application."""
    try:
        _start(config, folder)
        yield
    except AttendantError:
        raise
    except Exception as error:
        problem = str(error).strip().rpartition("\n")[2]
        raise AttendantError(f"Ray failed: {problem}") from error
    finally:
        if not isinstance(sys.exception(), PartEnded):  # else it would ask who is gone
            within(_SHUTDOWN_SECONDS, ray.shutdown)


def deploy(group: WorkerGroup, application: str, prefix: str) -> None:
    """Return once all replicas of the group run. Raises AttendantError."""
    try:
        serve.run(application_of(group, prefix), name=application, route_prefix=prefix or "/")
    except RuntimeError as error:
        raise AttendantError(f"group {group.name} did not start: {_cause(application)}") from error


def end_requests(applications: Sequence[str], timeout_seconds: float) -> None:
    """Have every replica answer, in the shapes of our protocols, what it has not finished."""

    async def end_all() -> None:
        each = (ask_all(name, timeout_seconds, "end_requests") for name in applications)
        await asyncio.gather(*each)

    within(timeout_seconds, lambda: asyncio.run(end_all()))  # handles need a loop to run on


def essential_processes() -> dict[str, "Popen[bytes]"]:
    """Return Ray's processes, by name, that it cannot do without."""
    node: Any = worker._global_node
    return {name: node.all_processes[name][0].process for name in _ESSENTIAL}


def part_ended(name: str, process: "Popen[bytes]") -> PartEnded:
    """Make the error that says how a process of Ray's ended."""
    code = process.wait()
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return PartEnded(f"Ray's {name} has ended ({how}); the server has to be started again")


def within(seconds: float, action: Callable[[], object]) -> None:
    """Do something that may fail or hang, for no longer than this."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(seconds)


def _start(config: ServerConfig, folder: Path) -> None:
    os.register_at_fork(after_in_child=_stand_apart)
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with _holding_signals():
        _init(config, folder)
    serve.start(
        # Serve's own proxy, which nobody asks: HAProxy goes to the replicas.
        http_options={"host": "127.0.0.1", "port": 0, "location": "HeadOnly"},
        logging_config={"log_level": "ERROR", "enable_access_log": False},
    )


def _init(config: ServerConfig, folder: Path) -> None:
    handlers = {number: signal.getsignal(number) for number in _STOPPING}
    ray.init(
        address="local",
        num_cpus=sum(group.max_replicas * cpus_per_replica(group) for group in config.groups),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=_OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
        _temp_dir=str(ray_folder(folder)),
    )
    for number, handler in handlers.items():  # Ray has put its own in their place
        signal.signal(number, handler)


@contextmanager
def _holding_signals() -> Iterator[None]:
    """Let signals come later that would end this process, and leave Ray's, while Ray starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def _stand_apart() -> None:
    """Whoever ends this process may end its group with it. Ray has to outlive that, to drain."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def _cause(application: str) -> str:
    """Return the last line of what a replica raised, as Ray Serve reports it."""
    status = serve.status().applications[application]
    messages = [deployment.message for deployment in status.deployments.values()]
    lines = "\n".join([status.message, *messages]).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"
