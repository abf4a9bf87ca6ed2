"""A Ray cluster of two nodes, each a host of its own, as docs/deploy.md starts it. What the head
knows is in Redis and the state of replicas in PostgreSQL, both on a third host. A fourth sends
requests.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.served import eventually
from tests.serving.deployments import deploy_page
from tests.serving.deployments.deploy_page import CLONE, blocks_below
from tests.serving.deployments.hosts import MODELS, Host, hosts

PORT = 8000
REPLICA_PORTS = range(30000, 30004)
# Added to the page's environment: shorter times, and workers that are no less urgent than others.
_ENVIRONMENT = f"""
RAY_SERVE_HAPROXY_TIMEOUT_SERVER_S=30
RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S=2
RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT={REPLICA_PORTS.start}
RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT={REPLICA_PORTS.stop}
RAY_SERVE_PORT_QUARANTINE_S=0
RAY_worker_niceness=0
"""
TOKEN = "0123456789abcdef" * 4


@dataclass
class Node:
    """A node of the cluster, with room for one replica."""

    host: Host
    _start_command: str

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{PORT}"

    def start(self) -> None:
        """Start Ray's part here, and start it again whenever it ends."""
        deploy_page.start(self.host, self._start_command, log="ray.log")

    def boot(self) -> None:
        """Switch a host on whose power was cut."""
        self.host.boot()
        self.start()

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
    client: Host
    db: Host

    @property
    def nodes(self) -> tuple[Node, Node]:
        return self.head, self.worker

    def has_a_replica_on_each(self, seconds: float) -> bool:
        """Return whether each node has a replica and a proxy before this time has passed."""
        return eventually(lambda: all(node.is_whole(self.client) for node in self.nodes), seconds)

    def has_a_dashboard(self, seconds: float) -> bool:
        """Return whether the head answers `apply` before this time has passed."""
        url = f"http://{self.head.host.address}:8265/api/serve/applications/"
        with self.client.clients(1) as pool:
            return eventually(lambda: pool.submit(_answers, url).result(), seconds)

    def apply(self, configuration: str, *options: str) -> str:
        """Return what `attendant deploy apply` writes."""
        self.client.path(f"{CLONE}/server.yaml").write_text(configuration)
        words = [*blocks_below("The same with Ray")[-1].split(), *options]
        command = " ".join(words) + " 2>&1 || true"
        return deploy_page.run(self.client, command).strip()


def _answers(url: str) -> bool:
    try:
        httpx.get(url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=10).raise_for_status()
    except httpx.HTTPError:
        return False
    return True


@contextmanager
def two_nodes(folder: Path, models: Path) -> Iterator[Cluster]:
    """Start them; at the end nothing is left of them."""
    redis, environment, start_head, start_worker, _ = blocks_below("The same with Ray")
    environment = environment.replace("TOKEN=TOKEN", f"TOKEN={TOKEN}")
    environment += f"cat >> ray.env <<'END'\n{_ENVIRONMENT}END\n"
    (postgresql,) = blocks_below("PostgreSQL")
    with hosts(folder, models, "one", "two", "client", "db") as (one, two, client, db):
        for host in (one, two, client, db):
            deploy_page.prepare(host, MODELS)
        client.path(f"{CLONE}/token").write_text(TOKEN)
        deploy_page.install_packages(db)
        deploy_page.run(db, postgresql)
        deploy_page.run(db, redis)
        cluster = Cluster(Node(one, start_head), Node(two, start_worker), client, db)
        for node in cluster.nodes:
            deploy_page.run(node.host, environment)
            node.start()
        yield cluster
