"""Hosts on one machine: each has an IP address, a host name and processes of its own, and its own
/etc, /run, /srv, /tmp and /var. A bridge connects them, and the cable of each can be cut.

A host is a set of Linux namespaces, which takes root. It reaches nothing but the other hosts.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.served import ROOT

HOME = "/srv/home"
MODELS = Path("/srv/models")
_SUBNET = "10.77.0"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h
_ALL_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")

# The first process of a host. It reaps orphans, and ends when the test's process does: `read`
# returns then. What is mounted last hides the folder that all of it comes from.
_FIRST_PROCESS = """
set -e
hostname "$1"
ip link set lo up
cd "$2"
[ -d etc ] || cp -a /etc etc
cp "$4" etc/hosts
mkdir -p srv/home srv/models tmp var/lib var/log var/tmp
chmod 1777 tmp var/tmp
ln -sfn /run var/run
mount --bind "$3" srv/models
mount -o remount,bind,ro srv/models
mount --bind etc /etc
mount --rbind srv /srv
mount --bind var /var
mount -t tmpfs run /run
mount -t tmpfs shared-memory /dev/shm
mount --bind tmp /tmp
echo ready
read
"""
_SWITCH = """
set -e
ip link add switch type bridge
ip link set switch up
echo ready
read
"""


def can_make_hosts() -> bool:
    """Return whether this is root, where namespaces may be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nsenter") is None:
        return False
    words = ["unshare", *_ALL_NAMESPACES, "--fork", "--mount-proc", "true"]
    return subprocess.run(words, capture_output=True).returncode == 0


@dataclass
class Host:
    """A machine. folder: what it keeps while its power is off, `tmp` and `srv`."""

    name: str
    address: str
    folder: Path
    _network: "Network"
    _process: "subprocess.Popen[str] | None" = field(default=None, init=False)
    _pid: int = field(default=0, init=False)  # of its first process
    _num_boots: int = field(default=0, init=False)
    _programs: "list[subprocess.Popen[bytes]]" = field(default_factory=list, init=False)

    def boot(self) -> None:
        self.folder.mkdir(exist_ok=True)
        words = ["unshare", *_ALL_NAMESPACES, "--fork", "--kill-child", "--mount-proc"]
        arguments = [self.name, self.folder, self._network.models, self._network.hosts_file]
        self._process = _start([*words, "bash", "-c", _FIRST_PROCESS, "bash", *map(str, arguments)])
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        self._pid = int(children)
        self._num_boots += 1
        self._network.connect(self._port, self._pid)
        self._ip("address", "add", f"{self.address}/24", "dev", "cable")
        self._ip("link", "set", "cable", "up")

    def cut_power(self) -> None:
        """Kill all of its processes at once with SIGKILL. Its files stay.

        The cable is cut before, because the kernel would close the connections of what it kills:
        without power nobody is told.
        """
        if self._process is not None:
            self.cut_cable()
            self._process.kill()
            self._process.wait()
            _close(self._process)
            self._process = None
            for program in self._programs:
                program.wait()
            self._programs.clear()

    def cut_cable(self) -> None:
        self._network.set_port(self._port, "down")

    def mend_cable(self) -> None:
        self._network.set_port(self._port, "up")

    def path(self, path: str) -> Path:
        """Return where a file of this host below /etc, /srv, /tmp or /var is on this machine."""
        return self.folder / path.lstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": HOME,
        }

    def start(
        self, *words: str, log: str, environment: Mapping[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """Start a program here. log: the file of `folder` that gets what it writes."""
        with (self.folder / log).open("ab") as file:
            program = subprocess.Popen(
                self._entered(words),
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._programs.append(program)
        return program

    def run(
        self, *words: str, environment: Mapping[str, str] | None = None, **options: Any
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._entered(words),
            env={**self.environment, **(environment or {})},
            text=True,
            capture_output=True,
            timeout=240,
            **options,
        )

    def attendant(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self.run(sys.executable, "-m", "serving.cli", *words)

    def clients(self, count: int) -> ThreadPoolExecutor:
        """Return threads whose connections start at this host."""
        return ThreadPoolExecutor(count, initializer=_enter_network, initargs=(self._pid,))

    def ready_urls(self, urls: Iterable[str]) -> list[str]:
        """Return the URLs of servers that are ready, as this host sees them."""
        urls = [*urls]
        with self.clients(1) as pool:
            ready = [*pool.map(_is_ready, urls)]
        return [url for url, is_ready in zip(urls, ready, strict=True) if is_ready]

    def pids(self, program: str) -> list[int]:
        """Return the processes here whose command line contains a text, as this machine numbers
        them.
        """
        listed = subprocess.run(
            ["pgrep", "--ns", str(self._pid), "--nslist", "pid", "--full", program],
            text=True,
            capture_output=True,
        )
        return [int(pid) for pid in listed.stdout.split()]

    @property
    def _port(self) -> str:
        # The kernel takes a moment to remove the port of a host whose power was cut.
        return f"{self.name}-{self._num_boots}"

    def _entered(self, words: Sequence[str]) -> list[str]:
        target = ["--target", str(self._pid), *_ALL_NAMESPACES, f"--wdns={ROOT}"]
        return ["nsenter", *target, *words]

    def _ip(self, *words: str) -> None:
        _check(["nsenter", "--target", str(self._pid), "--net", "ip", *words])


class Network:
    """A bridge and its hosts. models: the folder that all of them have as `MODELS`, read-only."""

    def __init__(self, folder: Path, models: Path, names: Sequence[str]) -> None:
        self.models = models
        self.hosts_file = folder / "hosts"
        self.hosts = [
            Host(name, f"{_SUBNET}.{number}", folder / name, self)
            for number, name in enumerate(names, 1)
        ]
        lines = [f"{host.address} {host.name}\n" for host in self.hosts]
        self.hosts_file.write_text("127.0.0.1 localhost\n" + "".join(lines))
        self._switch = _start(["unshare", "--net", "bash", "-c", _SWITCH])

    def connect(self, port: str, pid: int) -> None:
        cable = ["peer", "name", "cable", "netns", str(pid)]
        self._ip("link", "add", port, "type", "veth", *cable)
        self._ip("link", "set", port, "master", "switch", "up")

    def set_port(self, port: str, state: str) -> None:
        self._ip("link", "set", port, state)

    def close(self) -> None:
        for host in self.hosts:
            host.cut_power()
        self._switch.kill()
        self._switch.wait()
        _close(self._switch)

    def _ip(self, *words: str) -> None:
        _check(["nsenter", "--target", str(self._switch.pid), "--net", "ip", *words])


@contextmanager
def hosts(folder: Path, models: Path, *names: str) -> Iterator[list[Host]]:
    """Boot hosts of these names, at most 11 letters each. At the end nothing is left of them."""
    network = Network(folder, models, names)
    try:
        for host in network.hosts:
            host.boot()
        yield network.hosts
    finally:
        network.close()


def _start(words: list[str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is the test's alone, which cleans up
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line + process.stdout.read()
    return process


def _close(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    process.stdout.close()


def _check(words: list[str]) -> None:
    done = subprocess.run(words, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def _enter_network(pid: int) -> None:
    """Only the thread that calls it moves."""
    with open(f"/proc/{pid}/ns/net") as file:
        failed = ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK)
    assert not failed, os.strerror(ctypes.get_errno())


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
