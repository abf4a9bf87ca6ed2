"""Patches of Ray's own processes, for what Ray has no option for: fewer of them are started, and
sooner.

Each names the test that fails without it.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ray._private import parameter, services

_STARTING_SECONDS = 60.0  # on slow disks and noisy processors
_LOOP_SECONDS = 0.1
# In place of an agent: it reads from the raylet until that ends, and ends with it.
_NO_AGENT = 'sh -c "exec cat"'
_NO_PORT = "-1"  # as an agent that does not listen reports it


@contextmanager
def only_needed_processes(num_workers: int) -> Iterator[None]:
    """Let Ray start without the processes that serve a cluster: the log monitor, which sends what
    workers print to the driver, which does not ask for it; the monitor, which starts machines; the
    dashboard, and the raylet's agents for it and for environments of jobs. Together with Serve's
    proxy they take three seconds of a processor, in most of which nothing else starts, and 330 MiB.

    num_workers: worker processes that start with the raylet; Ray starts one for each processor.

    Test: tests/serving/deployments/servers/test_first_process.py.
    """
    originals = parameter.RayParams, services.start_api_server, services.start_ray_process

    def start_process(command: list[str], process_type: str, *args: Any, **options: Any) -> Any:
        if process_type == "raylet":
            command = _without_agents(command, num_workers)
        return originals[2](command, process_type, *args, **options)

    without = partial(originals[0], include_log_monitor=False, no_monitor=True)  # type: ignore[arg-type]
    parameter.RayParams = without  # type: ignore[misc, assignment]
    services.start_api_server = lambda *args, **options: ("", None)
    services.start_ray_process = start_process
    try:
        yield
    finally:
        parameter.RayParams, services.start_api_server, services.start_ray_process = originals  # type: ignore[misc]


def _without_agents(raylet: list[str], num_workers: int) -> list[str]:
    """Return the command line of a raylet that has no agents, and so waits for none."""
    changed = {
        "--dashboard_agent_command": _NO_AGENT,
        "--runtime_env_agent_command": _NO_AGENT,
        "--metrics-agent-port": _NO_PORT,
        "--metrics_export_port": _NO_PORT,
        "--runtime_env_agent_port": _NO_PORT,
        "--num_prestart_python_workers": str(num_workers),
        "--maximum_startup_concurrency": str(num_workers),
    }
    others = [word for word in raylet if word.partition("=")[0] not in changed]
    changed["--dashboard_agent_listen_port"] = _NO_PORT
    return [*others, *(f"{flag}={value}" for flag, value in changed.items())]


def prepare_controller() -> None:
    """Let Serve's controller start no proxy, since HAProxy sends requests to the replicas, and look
    at its replicas more often than later, until the server has started.

    Tests: tests/serving/deployments/servers/test_first_process.py.
    """
    from ray.serve._private import controller
    from ray.serve._private.proxy_state import ProxyStateManager

    gc.enable()
    ProxyStateManager._get_target_nodes = _no_nodes  # type: ignore[method-assign, assignment]
    later = controller.CONTROL_LOOP_INTERVAL_S
    controller.CONTROL_LOOP_INTERVAL_S = min(later, _LOOP_SECONDS)
    loop = asyncio.get_running_loop()
    loop.call_later(_STARTING_SECONDS, setattr, controller, "CONTROL_LOOP_INTERVAL_S", later)


def _no_nodes(manager: Any, proxy_nodes: Any) -> list[Any]:
    """Return the nodes that get a proxy."""
    return []
