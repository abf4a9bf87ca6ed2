"""Starts the servers that are compared over HTTP, one at a time, on the same cores, and stops them.

Ours is `attendant serve` as it comes. Against it stands the least that one would write around
CTranslate2, with dynamic batching (`loadtest/bench/peers/ctranslate2_server.py`), and llama.cpp's
own server with continuous batching (`loadtest/bench/peers/llama_cpp_server.py`).
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from loadtest.bench.compare_engines import (
    PEERS_FOLDER,
    Setup,
    SkippedPeer,
    ctranslate2_settings,
    in_words,
    llama_cpp_settings,
    pin_to_cores,
)
from loadtest.bench.compare_workloads import Workload

START_SECONDS = 180.0
STOP_SECONDS = 60.0
NOT_INSTALLED = 3  # the exit code of a server whose package is missing


@dataclass(frozen=True)
class RunningServer:
    """A server by its address and its first process."""

    url: str
    pid: int


@dataclass(frozen=True)
class ComparedServer:
    """A server of a comparison.

    command: {port} stands for its port.
    ready: a path that answers when the server is ready.
    """

    name: str
    setting: str
    command: tuple[str, ...]
    ready: str

    @contextmanager
    def running(self, cores: set[int]) -> Iterator[RunningServer]:
        """Return a context with the server. Raises SkippedPeer if something that it needs is not
        installed.
        """
        port = _free_port()
        command = [word.replace("{port}", str(port)) for word in self.command]
        with pin_to_cores(cores):
            process = subprocess.Popen(
                command, stdout=sys.stderr, stderr=sys.stderr, process_group=0
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(self.name, process, url + self.ready)
            yield RunningServer(url, process.pid)
        finally:
            _stop(process)


def attendant_server(setup: Setup) -> ComparedServer:
    command = (sys.executable, "-m", "serving.cli", "serve", str(setup.bundle), "--port", "{port}")
    return ComparedServer("attendant", "attendant serve as it comes", command, "/ready")


def ctranslate2_servers(model: Path, setup: Setup, workload: Workload) -> list[ComparedServer]:
    """Return the server over CTranslate2 in every setting."""
    script = (setup.interpreter, str(PEERS_FOLDER / "ctranslate2_server.py"), str(model), "{port}")
    cores = str(len(setup.cores))
    return [
        ComparedServer(
            "ctranslate2",
            f"dynamic batching, {in_words(setting)}",
            (*script, str(setting["workers"]), cores, str(setting["compute_type"])),
            "/health",
        )
        for setting in ctranslate2_settings(setup)
    ]


def llama_cpp_servers(model: Path, setup: Setup, workload: Workload) -> list[ComparedServer]:
    """Return the server with a slot for each user."""
    script = (setup.interpreter, str(PEERS_FOLDER / "llama_cpp_server.py"), str(model), "{port}")
    settings = {**llama_cpp_settings(setup), "streams": workload.batch}
    command = (*script, json.dumps(settings))
    return [ComparedServer("llama.cpp", "its own server", command, "/health")]


ServerMaker = Callable[[Path, Setup, Workload], list[ComparedServer]]
SERVERS: dict[str, ServerMaker] = {
    "ctranslate2": ctranslate2_servers,
    "llama.cpp": llama_cpp_servers,
}


def _wait(name: str, process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() == NOT_INSTALLED:
            raise SkippedPeer("its server needs packages that are not installed, see above")
        if process.poll() is not None:
            message = f"the server of {name} ended with code {process.returncode}, see above"
            raise click.ClickException(message)
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise click.ClickException(f"the server of {name} was not ready in {START_SECONDS:.0f} s")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it with the processes that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
