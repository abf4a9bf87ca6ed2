"""A real server that is stopped by a signal at some stage of its life, while clients send requests
without a pause: whatever was accepted ends in the protocol's shape.

As a program it stops many servers, each at a random stage after a random delay:

    python -m tests.serving.deployments.stopping --signals 200

With --without-ray its replicas are made up and start soon.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from serving.deployments.process_tree import descendants
from tests.served import attendant, free_port, int8_bundle
from tests.serving.deployments import without_ray
from tests.serving.deployments.parts import pids_of

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LONG = {"model": "writer", "prompt": "a", "temperature": 0, "ignore_eos": True, "max_tokens": 4000}
SHORT = {**LONG, "max_tokens": 20}
END_SECONDS = 90.0
STAGE_SECONDS = 240.0


@dataclass
class Stop:
    """When and how a server is stopped.

    stage: a name of STAGES. delay: seconds after it. second: seconds until the signal comes once
    more, None for one signal. to_group: as Ctrl-C in a terminal.
    """

    stage: str
    number: signal.Signals = signal.SIGTERM
    delay: float = 0.0
    second: float | None = None
    to_group: bool = False


@dataclass
class Outcome:
    """What a stop did. faults: what must not be."""

    status: int
    counts: Counter[str]
    faults: list[str] = field(default_factory=list)


class Clients:
    """Threads that send requests of several kinds, one after the other, and note how each ends."""

    def __init__(self, url: str, operations: str) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.admitted = threading.Event()
        self._url, self._operations = url, operations
        self._is_over = threading.Event()
        kinds = (
            partial_of(self._stream, LONG),
            partial_of(self._stream, SHORT),
            partial_of(self._plain, LONG),
            partial_of(self._plain, SHORT),
            self._slow_body,
            self._watch,
        )
        self._threads = [threading.Thread(target=self._repeat, args=(kind,)) for kind in kinds]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _repeat(self, send: Callable[[httpx.Client], str]) -> None:
        while not self._is_over.is_set():
            with httpx.Client(timeout=60, trust_env=False) as client:
                try:
                    self.counts[send(client)] += 1
                except (httpx.ConnectError, httpx.ConnectTimeout, ConnectionRefusedError):
                    self.counts["refused connection"] += 1
                except (httpx.TransportError, OSError) as error:
                    self.counts[f"{send.__name__}: {type(error).__name__} before an answer"] += 1
            time.sleep(0.02 if self.admitted.is_set() else 0.2)

    def _stream(self, client: httpx.Client, body: dict[str, Any]) -> str:
        url = f"{self._url}/v1/completions"
        with client.stream("POST", url, json={**body, "stream": True}) as response:
            if response.status_code != 200:
                response.read()
                return self._refused(response)
            self.admitted.set()
            data = ""
            try:
                for line in response.iter_lines():
                    data = line.removeprefix("data: ") if line.startswith("data: ") else data
            except httpx.TransportError as error:
                self.faults.append(f"a stream was cut: {error!r} after {data[:60]!r}")
                return "stream cut"
        if data == "[DONE]":
            return "stream done"
        if json.loads(data).get("error"):
            return "stream ended by an error event"
        self.faults.append(f"a stream ended with {data!r}")
        return "stream without an end"

    def _plain(self, client: httpx.Client, body: dict[str, Any]) -> str:
        response = client.post(f"{self._url}/v1/completions", json=body)
        if response.status_code != 200:
            return self._refused(response)
        self.admitted.set()
        return "plain answer"

    def _slow_body(self, client: httpx.Client) -> str:
        """Send a body in two parts, with a pause between them."""
        text = json.dumps(SHORT).encode()

        def parts() -> Any:
            yield text[:20]
            time.sleep(0.3)
            yield text[20:]

        headers = {"Content-Length": str(len(text)), "Content-Type": "application/json"}
        response = client.post(f"{self._url}/v1/completions", content=parts(), headers=headers)
        return "slow body answered" if response.is_success else self._refused(response)

    def _watch(self, client: httpx.Client) -> str:
        for url in (self._url, self._operations):
            health = client.get(f"{url}/health")
            if (health.status_code, health.json()) != (200, {"status": "ok"}):
                self.faults.append(f"{url}/health: {health.status_code} {health.text}")
            ready = client.get(f"{url}/ready")
            if ready.status_code == 200:
                self.admitted.set()
            elif ready.status_code != 503:
                self.faults.append(f"{url}/ready: {ready.status_code} {ready.text}")
        return "watched"

    def _refused(self, response: httpx.Response) -> str:
        error = response.json().get("error")
        if response.status_code not in (429, 503) or "message" not in error:
            self.faults.append(f"refused with {response.status_code} {response.text}")
        return f"{response.status_code} {error['message']}"


def partial_of(send: Callable[..., str], body: dict[str, Any]) -> Callable[[httpx.Client], str]:
    def call(client: httpx.Client) -> str:
        return send(client, body)

    call.__name__ = send.__name__
    return call


class Server:
    """A server that starts, its clients, and the lines of its console."""

    def __init__(self, bundles: list[Path], folder: Path, program: str) -> None:
        port, operations = free_port(), free_port()
        groups = [
            {"name": bundle.name, "bundles": [bundle], "cpus_per_replica": 1} for bundle in bundles
        ]
        addresses = {"port": port, "operations_port": operations, "state": str(folder / "state")}
        path = folder / "server.yaml"
        settings = {**addresses, "drain_seconds": 1, "groups": groups}
        path.write_text(json.dumps(settings, default=str))
        self.ports = (port, operations)
        self.lines: list[str] = []
        self.family: set[int] = set()
        self.process = attendant("serve", "--config", str(path), program=program)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.clients = Clients(*(f"http://127.0.0.1:{port}" for port in self.ports))

    def wait_for(self, stage: str) -> None:
        deadline = time.monotonic() + STAGE_SECONDS
        while not STAGES[stage](self):
            assert self.process.poll() is None, "".join(self.lines)
            assert time.monotonic() < deadline, f"never {stage}"
            time.sleep(0.03)

    def says(self, text: str) -> bool:
        return any(line.startswith(text) for line in self.lines)

    def send(self, stop: Stop) -> None:
        self.family |= descendants(self.process.pid)
        with suppress(ProcessLookupError):
            kill = os.killpg if stop.to_group else os.kill
            kill(self.process.pid, stop.number)

    @property
    def has_admitted(self) -> bool:
        """Return whether requests were admitted, as a client or the console noticed."""
        return self.clients.admitted.is_set() or self.says("Serving on")

    def end(self) -> int:
        """Wait for the end of the process; return its exit status."""
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self.clients.end()
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as console:
            for line in console:
                self.lines.append(line)


# Ray's own processes say that they miss each other while all of them end.
_LINE_OF_RAY = re.compile(r"\.cc:\d+: ")

STAGES: dict[str, Callable[[Server], bool]] = {
    "process": lambda server: True,
    "starting": lambda server: server.says("Starting"),
    "port open": lambda server: server.clients.counts["watched"] > 0,
    "Ray starts": lambda server: bool(pids_of(server.process.pid, "gcs")),
    "Ray runs": lambda server: bool(pids_of(server.process.pid, "controller")),
    "loading": lambda server: bool(pids_of(server.process.pid, "replica")),
    "admitted": lambda server: server.clients.admitted.is_set(),
    "announced": lambda server: server.says("Serving on"),
    "busy": lambda server: server.clients.counts["stream done"] > 2,
}


def stopped(bundles: list[Path], folder: Path, stop: Stop, program: str = "serving.cli") -> Outcome:
    """Start a server with clients, stop it so, and return what became of all. program: the module
    to run.
    """
    server = Server(bundles, folder, program)
    try:
        server.wait_for(stop.stage)
        time.sleep(stop.delay)
        was_admitted = server.has_admitted
        server.send(stop)
        if stop.second is not None:
            time.sleep(stop.second)
            server.send(stop)
    finally:
        if server.process.poll() is None and sys.exception():
            server.process.kill()
        status = server.end()
    outcome = Outcome(status, server.clients.counts, server.clients.faults)
    # A signal before the first lines of Python are run ends the process by itself.
    early = {128 + stop.number, -stop.number}
    expected = {0} if was_admitted else early | {0} if server.has_admitted else early
    if status not in expected:
        outcome.faults.append(f"exit status {status}")
    console = "".join(line for line in server.lines if not _LINE_OF_RAY.search(line))
    # Without a first line it is Python's own, of an interrupt while it imported the program.
    if server.says("Starting") and ("Traceback" in console or "rror" in console):
        outcome.faults.append(console)
    outcome.faults += [f"process {pid} is left" for pid in left_of(server.family)]
    for port in server.ports:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            outcome.faults.append(f"port {port} is still open")
    return outcome


def left_of(family: set[int]) -> list[int]:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [pid for pid in family if os.path.exists(f"/proc/{pid}")]
        if not left:
            return []
        time.sleep(0.1)
    return left


def random_stop(generator: random.Random) -> Stop:
    """Return a stop; half of them come in the first seconds of serving."""
    late = ("admitted", "announced", "busy")
    stage = generator.choice(late if generator.random() < 0.5 else tuple(STAGES))
    second = generator.choice((None, None, 0.0, generator.uniform(0, 4)))
    return Stop(
        stage,
        generator.choice(SIGNALS),
        generator.choice((0.0, generator.uniform(0, 2))),
        second,
        generator.random() < 0.5,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--signals", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-ray", action="store_true")
    given = parser.parse_args()
    program = without_ray.__name__ if given.without_ray else "serving.cli"
    generator = random.Random(given.seed)
    counts: Counter[str] = Counter()
    faults = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bundles = [
            int8_bundle("writer", "llama", folder / "writer", context_length=8192),
            int8_bundle("tiny", "transformer", folder / "tiny"),
        ]
        for count in range(given.signals):
            stop = random_stop(generator)
            place = folder / str(count)
            place.mkdir()
            started = time.monotonic()
            outcome = stopped(bundles, place, stop, program)
            counts += outcome.counts
            faults += bool(outcome.faults)
            seconds = time.monotonic() - started
            print(
                f"{count + 1}: {stop} -> {outcome.status} {seconds:.0f} s {outcome.faults or ''}",
                flush=True,
            )
    for kind, count in counts.most_common():
        print(f"{count:7} {kind}")
    print(f"{faults} of {given.signals} servers with a fault")
    sys.exit(min(faults, 1))


if __name__ == "__main__":
    main()
