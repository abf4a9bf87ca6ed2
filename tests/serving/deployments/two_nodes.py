"""Two nodes of a Ray cluster on this machine: each has network, home folder and processes of its
own, and a cable between them can be cut.

A node is a network namespace, which takes root. Nothing in it reaches anything but the other node.
"""

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from tests.deploy.rendered import ray_environment
from tests.served import ROOT, eventually

PORT = 8000
REPLICA_PORTS = range(30000, 30004)
_GCS_PORT = 6379
_DRAINING_SECONDS = 2  # else 30 for each replica that is replaced
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


def can_make_nodes() -> bool:
    """Whether this is root, where namespaces may be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0


@dataclass
class Node:
    """A machine of the cluster. It has as many CPUs as one replica takes."""

    namespace: str
    address: str
    folder: Path
    environment: dict[str, str]
    _ray: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://{self.address}:{PORT}"

    def start(self, *options: str) -> None:
        """Start Ray's part here, whose processes end together."""
        (self.folder / "home").mkdir(exist_ok=True)
        common = ["--num-cpus", "1", "--object-store-memory", str(128 * 2**20), "--block"]
        words = ["ray", "start", "--node-ip-address", self.address, *common, *options]
        with (self.folder / "log").open("ab") as log:
            self._ray = subprocess.Popen(
                self.words(*words), env=self.environment, stdout=log, stderr=log, cwd=ROOT
            )

    def words(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, "nice", "-n", "5", *words]

    def attendant(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = self.words(sys.executable, "-m", "serving.cli", *words)
        return subprocess.run(
            command, env=self.environment, cwd=ROOT, text=True, capture_output=True, timeout=200
        )

    def clients(self, count: int) -> ThreadPoolExecutor:
        """Threads whose connections start at this node."""
        return ThreadPoolExecutor(count, initializer=_enter, initargs=(self.namespace,))

    def replica_urls(self) -> list[str]:
        """Where replicas on this node answer by themselves."""
        urls = [f"http://{self.address}:{port}" for port in REPLICA_PORTS]
        with self.clients(1) as pool:
            return [
                url for url, ready in zip(urls, pool.map(_is_ready, urls), strict=True) if ready
            ]

    def kill_raylet(self) -> None:
        (raylet,) = [pid for pid in self._pids() if _program(pid) == "raylet"]
        os.kill(raylet, signal.SIGKILL)

    def has_ended(self) -> bool:
        assert self._ray is not None
        return self._ray.poll() is not None

    def clear(self) -> None:
        """End what is left of it."""
        for pid in self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._ray is not None:
            self._ray.wait()

    def _pids(self) -> list[int]:
        listed = _ip("netns", "pids", self.namespace)
        return [int(pid) for pid in listed.split()]


@dataclass
class Cluster:
    head: Node
    worker: Node
    token_file: Path

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.head, self.worker

    def start_head(self) -> None:
        folder = str(self.head.folder / "ray")
        dashboard = ["--include-dashboard", "true", "--dashboard-host", "127.0.0.1"]
        self.head.start("--head", "--port", str(_GCS_PORT), "--temp-dir", folder, *dashboard)

    def start_worker(self) -> None:
        self.worker.start("--address", f"{self.head.address}:{_GCS_PORT}")

    def cable(self, state: str) -> None:
        """Cut it with "down", heal it with "up"."""
        _ip("-n", self.worker.namespace, "link", "set", "cable", state)


@contextmanager
def two_nodes(folder: Path) -> Iterator[Cluster]:
    """Start them; at the end nothing is left of either."""
    token_file = folder / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(secrets.token_hex(32))
    nodes = [_node(folder, number, token_file) for number in (1, 2)]
    cluster = Cluster(nodes[0], nodes[1], token_file)
    try:
        _connect(cluster)
        cluster.start_head()
        cluster.start_worker()
        yield cluster
    finally:
        for node in nodes:
            with suppress(subprocess.CalledProcessError):
                node.clear()
                _ip("netns", "delete", node.namespace)


def _node(folder: Path, number: int, token_file: Path) -> Node:
    own = folder / str(number)
    own.mkdir()
    environment = {
        **os.environ,
        **ray_environment(),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(own / "home"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token_file),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(_DRAINING_SECONDS),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(REPLICA_PORTS.start),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(REPLICA_PORTS.stop),
        "RAY_SERVE_PORT_QUARANTINE_S": "0",
    }
    return Node(f"attendant-{os.getpid()}-{number}", f"10.77.0.{number}", own, environment)


def _connect(cluster: Cluster) -> None:
    first, second = cluster.nodes
    for node in cluster.nodes:
        _ip("netns", "add", node.namespace)
        _ip("-n", node.namespace, "link", "set", "lo", "up")
    ends = ["netns", first.namespace, "type", "veth", "peer", "name", "cable"]
    _ip("link", "add", "cable", *ends, "netns", second.namespace)
    for node in cluster.nodes:
        _ip("-n", node.namespace, "address", "add", f"{node.address}/24", "dev", "cable")
        _ip("-n", node.namespace, "link", "set", "cable", "up")


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], check=True, text=True, capture_output=True)
    return done.stdout


def _enter(namespace: str) -> None:
    """Only the thread that calls it moves."""
    with open(f"/run/netns/{namespace}") as file:
        failed = ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK)
    assert not failed, os.strerror(ctypes.get_errno())


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _program(pid: int) -> str:
    with suppress(OSError):
        return Path(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()).name
    return ""


def each_has_a_replica(cluster: Cluster, seconds: float) -> bool:
    return eventually(lambda: all(len(node.replica_urls()) == 1 for node in cluster.nodes), seconds)
