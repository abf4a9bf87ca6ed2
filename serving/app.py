"""Ray and Ray Serve: a server on this machine, or an application for a cluster.

`run` is what `attendant serve` does. On a Ray cluster or KubeRay each worker group is an
application of its own: import path `serving.app:build`, its arguments those of a WorkerGroup.
"""

import logging
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from serving.deployments.console import console
from serving.deployments.listening import Listening, listening_at
from serving.deployments.scratch import ray_folder, scratch_folder
from serving.deployments.surroundings import environment
from serving.errors import AttendantError
from serving.server_config import ServerConfig, WorkerGroup

if TYPE_CHECKING:
    from ray.serve import Application

_OBJECT_STORE_BYTES = 128 * 2**20  # requests and answers only; weights never go through it
_READY_TIMEOUT_SECONDS = 60.0


class Stopped(BaseException):
    """SIGINT or SIGTERM."""


def build(group: WorkerGroup) -> "Application":
    """Return the application of a group, for `serve deploy` and KubeRay."""
    from serving.deployments.group import application_of

    return application_of(group)


def run(config: ServerConfig, announce: Callable[[Listening], None]) -> None:
    """Serve until SIGINT or SIGTERM, then drain and leave nothing behind."""
    listening = listening_at(config.host, config.port)
    with _stopped_by_signals(), suppress(Stopped), scratch_folder() as folder:
        _stand_somewhere(folder)
        os.environ.pop("RAY_ADDRESS", None)  # of another Ray, which has no part in this
        os.environ.update(environment(folder, listening))
        with console(folder), _ray(config, folder, listening.port):
            _deploy(config)
            _wait_until_ready(listening.url)
            announce(listening)
            while True:
                signal.pause()


def _stand_somewhere(folder: Path) -> None:
    """Ray does not start in a working folder that has been removed."""
    try:
        os.getcwd()
    except OSError:
        os.chdir(folder)


@contextmanager
def _ray(config: ServerConfig, folder: Path, port: int) -> Iterator[None]:
    """Ray on this machine, for as long as the block runs."""
    import ray
    from ray import serve

    try:
        _start(config, folder, port)
        yield
    except AttendantError:
        raise
    except Exception as error:
        problem = str(error).strip().rpartition("\n")[2]
        raise AttendantError(f"Ray failed: {problem}") from error
    finally:
        _ignore_signals()
        if ray.is_initialized():  # else Serve would look for another Ray to ask
            with suppress(Exception):
                for name in serve.status().applications:
                    serve.delete(name)  # waits for the requests that are being served
            ray.shutdown()


def _start(config: ServerConfig, folder: Path, port: int) -> None:
    import ray
    from ray import serve

    from serving.deployments.group import cpus_per_replica

    # Whoever ends this process may end its group with it. Ray has to outlive that, to drain.
    os.register_at_fork(after_in_child=os.setsid)
    for name in ("ray", "ray.serve"):
        logging.getLogger(name).setLevel(logging.ERROR)
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
    _stop_on_signals()  # Ray has put its own handlers in their place
    serve.start(
        # The public listener gets its own address in the script that starts HAProxy.
        http_options={"host": "127.0.0.1", "port": port, "location": "HeadOnly"},
        logging_config={"log_level": "ERROR", "enable_access_log": False},
    )


def _deploy(config: ServerConfig) -> None:
    """Say where a group answers: the first one at `/`, the others beneath their names."""
    from ray import serve

    for number, group in enumerate(config.groups):
        prefix = "/" if number == 0 else f"/groups/{group.name}"
        try:
            serve.run(build(group), name=group.name, route_prefix=prefix)
        except RuntimeError as error:
            raise AttendantError(f"group {group.name} did not start: {_cause(group)}") from error


def _cause(group: WorkerGroup) -> str:
    """Return the last line of what a replica raised, as Ray Serve reports it."""
    from ray import serve

    application = serve.status().applications[group.name]
    messages = [deployment.message for deployment in application.deployments.values()]
    lines = "\n".join([application.message, *messages]).strip().splitlines()
    return lines[-1].strip() if lines else "no reason is known"


def _wait_until_ready(url: str) -> None:
    """Wait for the proxy, which learns of a replica a moment after it runs."""
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
        raise Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
