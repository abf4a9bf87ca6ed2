"""A Ray cluster of two nodes, each a host of its own, whose head keeps what it knows in Redis on a
third host. A fourth sends requests.
"""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.deploy.rendered import ray_environment
from tests.served import eventually
from tests.serving.deployments.hosts import HOME, Host, can_make_hosts, hosts

PORT = 8000
DASHBOARD = "http://head:8265"
REPLICA_PORTS = range(30000, 30004)
TOKEN_FILE = f"{HOME}/.ray/auth_token"
_GCS_PORT = 6379
_DRAINING_SECONDS = 2  # else 30 for each replica that is replaced
_AGAIN_AND_AGAIN = 'while true; do "$@"; sleep 1; done'  # as systemd and KubeRay do
_TIMEOUT_SECONDS = 30  # else 330 until a request ends whose node has lost its power
_RECONNECT_SECONDS = 600  # how long workers wait for a head; KubeRay sets the same


def can_run_cluster() -> bool:
    """Return whether hosts can be made, and Redis is installed."""
    return can_make_hosts() and shutil.which("redis-server") is not None


@dataclass
class Node:
    """A node of the cluster. It has as many CPUs as one replica takes."""

    host: Host

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{PORT}"

    def start(self, *options: str, **environment: str) -> None:
        """Start Ray's part here, whose processes end together, and start it again when it ends."""
        words = ["ray", "start", "--block", "--node-ip-address", self.host.address]
        size = ["--num-cpus", "1", "--object-store-memory", str(128 * 2**20)]
        self.host.start(
            *("bash", "-c", _AGAIN_AND_AGAIN, "bash", *words, *size, *options),
            log="ray.log",
            environment={**_environment(), **environment},
        )

    def replica_pids(self) -> list[int]:
        return self.host.pids("ray::ServeReplica")

    def replica_urls(self, client: Host) -> list[str]:
        """Return where replicas on this node answer without a proxy."""
        return client.ready_urls(f"http://{self.host.address}:{port}" for port in REPLICA_PORTS)

    def is_whole(self, client: Host) -> bool:
        """Return whether its proxy and exactly one replica answer."""
        return len(self.replica_urls(client)) == 1 and client.ready_urls([self.url]) != []


@dataclass
class Cluster:
    head: Node
    worker: Node
    storage: Host
    client: Host
    redis_password: str

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.head, self.worker

    def start_redis(self) -> None:
        folder = self.storage.folder / "srv" / "redis"
        folder.mkdir(exist_ok=True)
        lines = [
            "dir /srv/redis",
            "bind 0.0.0.0",
            "appendonly yes",
            f"requirepass {self.redis_password}",
        ]
        (folder / "redis.conf").write_text("\n".join(lines) + "\n")
        self.storage.start("redis-server", "/srv/redis/redis.conf", log="redis.log")

    def start_head(self) -> None:
        dashboard = ["--include-dashboard", "true", "--dashboard-host", "0.0.0.0"]
        self.head.start(
            *("--head", "--port", str(_GCS_PORT), "--redis-password", self.redis_password),
            *dashboard,
            RAY_REDIS_ADDRESS="storage:6379",
        )

    def start_worker(self) -> None:
        self.worker.start(
            *("--address", f"head:{_GCS_PORT}"),
            RAY_gcs_rpc_server_reconnect_timeout_s=str(_RECONNECT_SECONDS),
        )

    def has_a_replica_on_each(self, seconds: float) -> bool:
        """Return whether each node has a replica and a proxy before this time has passed."""
        return eventually(lambda: all(node.is_whole(self.client) for node in self.nodes), seconds)


@contextmanager
def two_nodes(folder: Path, models: Path) -> Iterator[Cluster]:
    """Start them; at the end nothing is left of them."""
    token = secrets.token_hex(32)
    with hosts(folder, models, "head", "worker", "storage", "client") as machines:
        head, worker, storage, client = machines
        for host in machines:
            token_file = host.folder / TOKEN_FILE.lstrip("/")
            token_file.parent.mkdir(parents=True)
            token_file.write_text(token)
            token_file.chmod(0o600)
        cluster = Cluster(Node(head), Node(worker), storage, client, secrets.token_hex(16))
        cluster.start_redis()
        cluster.start_head()
        cluster.start_worker()
        yield cluster


def _environment() -> dict[str, str]:
    return {
        **ray_environment(),
        "RAY_AUTH_MODE": "token",
        "RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S": str(_TIMEOUT_SECONDS),
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": str(_DRAINING_SECONDS),
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(REPLICA_PORTS.start),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(REPLICA_PORTS.stop),
        "RAY_SERVE_PORT_QUARANTINE_S": "0",
    }
