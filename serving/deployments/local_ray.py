"""Start a Ray of our own for one run, and end it whatever state it is in.

Ray Serve is imported after Ray has been started: its processes start meanwhile.
"""

import asyncio
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TypeVar

import ray
from ray._private import utils
from ray.exceptions import RayError

from serving.deployments.environment import OBJECT_STORE_BYTES
from serving.deployments.process_tree import children
from serving.deployments.ray_processes import only_needed_processes
from serving.deployments.stop_signals import Stopped
from serving.deployments.worker_group import cpus_per_replica
from serving.errors import AttendantError, PartEnded
from serving.server_config import ServerConfig

_SHUTDOWN_SECONDS = 8.0
_BLOCKED = (signal.SIGINT, signal.SIGTERM)
_RETRY_SECONDS = 0.1
_ESSENTIAL = ("gcs_server", "raylet")

Result = TypeVar("Result")


@contextmanager
def local_ray(config: ServerConfig) -> Iterator[None]:
    """Run Ray while the block runs. Raises AttendantError."""
    try:
        _start(config)
        yield
    except AttendantError:
        raise
    except Exception as error:
        problem = str(error).strip().rpartition("\n")[2]
        raise AttendantError(f"Ray failed: {problem}") from error
    finally:
        match sys.exception():
            case None | Stopped():
                _end_raylet()
            case PartEnded():
                pass  # Ray would wait for the ended process
            case _:
                run_within(_SHUTDOWN_SECONDS, ray.shutdown)


def _end_raylet() -> None:
    """End the raylet in order, and with it the workers. Whatever does not end is killed later.

    `ray.shutdown` does the same, but also lets SIGTERM kill this process from then on.
    """
    for raylet in [child.pid for child in children() if child.name == "raylet"]:
        descriptor = os.pidfd_open(raylet)
        os.kill(raylet, signal.SIGTERM)
        select.select([descriptor], [], [], _SHUTDOWN_SECONDS)
        os.close(descriptor)


def end_requests(applications: Sequence[str], timeout_seconds: float) -> None:
    """Make every replica answer the requests in progress with their protocol's error."""
    from ray.serve.exceptions import RayServeException

    from serving.deployments.forwarding import ask_all

    async def end(name: str) -> None:
        while True:
            with suppress(RayError, RayServeException):  # Serve's controller has just died
                await ask_all(name, timeout_seconds, "end_requests")
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def end_all() -> None:
        await asyncio.gather(*map(end, applications))

    run_within(timeout_seconds, lambda: asyncio.run(end_all()))  # handles need a loop to run on


def essential_processes() -> dict[str, int]:
    """Return the process ids, by name, of those of Ray's processes that it cannot run without."""
    pids = {child.name: child.pid for child in children() if child.name in _ESSENTIAL}
    assert len(pids) == len(_ESSENTIAL), f"Ray runs only {pids}"
    return pids


def part_ended(name: str, pid: int) -> PartEnded:
    """Return the error that says how a process of Ray ended."""
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return PartEnded(f"Ray's {name} has ended ({how}); the server has to be started again")


def run_within(seconds: float, action: Callable[[], object]) -> None:
    """Call something that may fail or hang, and wait no longer than this."""
    with suppress(Exception):
        in_thread(action).result(seconds)


def in_thread(action: Callable[[], Result]) -> "Future[Result]":
    """Call something in a thread that this process does not wait for when it ends."""
    future: Future[Result] = Future()

    def call() -> None:
        try:
            future.set_result(action())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


def _start(config: ServerConfig) -> None:
    os.register_at_fork(after_in_child=_start_session)
    logging.getLogger("ray").setLevel(logging.ERROR)
    num_replicas = sum(group.min_replicas for group in config.groups)
    with _blocked_signals(), only_needed_processes(num_replicas + 1):  # and Serve's controller
        _init(config)


def start_serve() -> None:
    """Start Ray Serve, without applications."""
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # its import has set it to INFO
    serve.start(
        http_options={"host": "127.0.0.1", "port": 0},  # of the replicas
        logging_config={"log_level": "ERROR", "enable_access_log": False},
    )


def _init(config: ServerConfig) -> None:
    with _without_handlers_of_ray():
        ray.init(
            address="local",
            num_cpus=sum(group.max_replicas * cpus_per_replica(group) for group in config.groups),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            object_store_memory=OBJECT_STORE_BYTES,
            _skip_env_hook=True,  # all processes have one environment: no agent makes others
        )


@contextmanager
def _without_handlers_of_ray() -> Iterator[None]:
    """Keep our own handlers of signals while Ray starts. Ray's handler of SIGTERM would end this
    process at once: the main thread blocks signals meanwhile, but one that another thread gets is
    handled here, too.
    """
    handlers = {number: signal.getsignal(number) for number in _BLOCKED}
    original = utils.set_sigterm_handler
    utils.set_sigterm_handler = lambda handler: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = original
        for number, handler in handlers.items():  # Ray's core has replaced them below Python
            signal.signal(number, handler)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Delay signals that end this process until Ray has started, or parts of it would stay."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def _start_session() -> None:
    """Put Ray's processes in a session of their own: a signal to this process's group, as Ctrl-C
    sends, must not end them before the server has drained.
    """
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
