"""Starts the servers that are raced over HTTP, one at a time, on the same cores, and stops them.

Ours is `attendant serve` as it comes. Against it stands the least that one would write around
CTranslate2, with dynamic batching (`loadtest/bench/peers/ctranslate2_server.py`), and
llama-cpp-python's own server.
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from loadtest.bench.race.players import PEERS_FOLDER, SkippedPeer, pinned
from loadtest.bench.race.roster import Setup, ctranslate2_settings, said

START_SECONDS = 180.0
STOP_SECONDS = 60.0
NOT_INSTALLED = 3  # the exit code of a server whose package is missing


@dataclass(frozen=True)
class Server:
    """Describes a server. command: {port} stands for its port. ready: a path that answers then."""

    name: str
    setting: str
    command: tuple[str, ...]
    ready: str

    @contextmanager
    def running(self, cores: set[int]) -> Iterator[str]:
        """Yield its address. Raises SkippedPeer where what it needs is not installed."""
        port = _free_port()
        command = [word.replace("{port}", str(port)) for word in self.command]
        with pinned(cores):
            process = subprocess.Popen(
                command, stdout=sys.stderr, stderr=sys.stderr, process_group=0
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(self.name, process, url + self.ready)
            yield url
        finally:
            _stop(process)


def attendant_server(setup: Setup) -> Server:
    command = (sys.executable, "-m", "serving.cli", "serve", str(setup.bundle), "--port", "{port}")
    return Server("attendant", "attendant serve as it comes", command, "/ready")


def ctranslate2_servers(model: Path, setup: Setup) -> list[Server]:
    """Return the server over CTranslate2 in every setting."""
    script = (setup.interpreter, str(PEERS_FOLDER / "ctranslate2_server.py"), str(model), "{port}")
    cores = str(len(setup.cores))
    return [
        Server(
            "ctranslate2",
            f"dynamic batching, {said(each)}",
            (*script, str(each["workers"]), cores, str(each["compute_type"])),
            "/health",
        )
        for each in ctranslate2_settings(setup)
    ]


def llama_cpp_servers(model: Path, setup: Setup) -> list[Server]:
    script = (setup.interpreter, "-m", "llama_cpp.server", "--model", str(model))
    options = ("--n_threads", str(len(setup.cores)), "--n_ctx", str(setup.context))
    command = (*script, "--port", "{port}", *options)
    return [Server("llama.cpp", "its own server", command, "/v1/models")]


SERVERS = {"ctranslate2": ctranslate2_servers, "llama.cpp": llama_cpp_servers}


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
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port
