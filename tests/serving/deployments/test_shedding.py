"""HAProxy refuses by itself, for a moment, what a replica has just refused: a real HAProxy with our
rules before a replica that counts what it is asked.
"""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from serving.api.http.endpoint import ARRIVED_MS
from serving.api.http.protocol import REFUSES_ALL
from serving.deployments.environment import free_ports
from serving.deployments.haproxy import haproxy
from serving.deployments.haproxy_config import Front, ServedGroup
from serving.deployments.listening import Listening
from tests.served import eventually, free_port

GREETING = {"q": "Hello.", "source": "en", "target": "fr"}


class Replica(ThreadingHTTPServer):
    """Answers with `status` and `headers`, counts the requests and keeps when they arrived."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.status, self.headers, self.num_asked = 200, dict[str, str](), 0
        self.arrived_ms = ""


class Handler(BaseHTTPRequestHandler):
    server: Replica

    def do_GET(self) -> None:
        """HAProxy asks who it is, and whether it is ready."""
        self.send_response(200)
        self.send_header("Content-Length", "8")
        self.end_headers()
        self.wfile.write(b'"only-1"')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.num_asked += 1
        self.server.arrived_ms = self.headers[ARRIVED_MS]
        self.send_response(self.server.status)
        for name, value in {"Content-Length": "0", **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Replica, httpx.Client]]:
    public, operations = (Listening("127.0.0.1", free_port()) for _ in range(2))
    port, metrics_port = free_ports(2)
    served = [ServedGroup("only", "only-1", "")]
    front = Front(public, operations, 100, 1, range(port, port + 1), metrics_port, served)
    replica = Replica(port)
    threading.Thread(target=replica.serve_forever, daemon=True).start()
    with (
        haproxy(front, tmp_path_factory.mktemp("h")) as proxy,
        httpx.Client(base_url=public.url, timeout=30) as client,
    ):
        proxy.admit()
        assert eventually(lambda: client.get("/ready").status_code == 200)
        yield replica, client
    replica.shutdown()
    replica.server_close()


@pytest.fixture
def full(world: tuple[Replica, httpx.Client]) -> Iterator[tuple[Replica, httpx.Client]]:
    """The replica refuses all requests, whatever their size."""
    replica, client = world
    time.sleep(0.11)  # what another test was told has been forgotten
    replica.status, replica.num_asked = 429, 0
    replica.headers = {REFUSES_ALL: "1", "Retry-After-Ms": "1200"}
    yield replica, client
    replica.status, replica.headers = 200, {}


def post(client: httpx.Client, path: str = "/translate", **fields: object) -> httpx.Response:
    return client.post(path, json=GREETING | fields)


def until_refused_in_front(
    client: httpx.Client, path: str = "/translate", **fields: object
) -> httpx.Response:
    """A busy machine may take more than the moment for which refusals are remembered."""
    for _ in range(100):
        post(client, path, **fields)
        answer = post(client, path, **fields)
        if answer.content:
            return answer
    raise AssertionError("the replica was always asked")


def test_a_replica_learns_when_a_request_arrived_whatever_the_client_says(
    world: tuple[Replica, httpx.Client],
) -> None:
    replica, client = world
    for headers in ({}, {ARRIVED_MS: "0"}):
        before = time.time()
        client.post("/translate", json=GREETING, headers=headers)
        assert before - 0.01 <= int(replica.arrived_ms) / 1000 <= time.time() + 0.01


def test_who_asks_alike_is_refused_in_front_of_the_replica(
    full: tuple[Replica, httpx.Client],
) -> None:
    _, client = full
    answer = until_refused_in_front(client)
    assert answer.status_code == 429
    assert (answer.headers["Retry-After"], answer.headers["Retry-After-Ms"]) == ("2", "1200")
    assert "waiting" in answer.json()["error"]
    assert REFUSES_ALL not in answer.headers


def test_the_refusal_has_the_shape_of_the_protocol(full: tuple[Replica, httpx.Client]) -> None:
    _, client = full
    answer = until_refused_in_front(client, "/v1/completions", model="llama-en")
    assert answer.json()["error"]["type"] == "rate_limit_error"


@pytest.mark.parametrize(
    "other",
    [{"model": "another"}, {"target": "de"}, {"priority": -1}],
    ids=["model", "target", "priority"],
)
def test_others_are_let_through(
    full: tuple[Replica, httpx.Client], other: dict[str, object]
) -> None:
    replica, client = full
    until_refused_in_front(client)
    num_before = replica.num_asked
    post(client, "/translate", **other)
    assert replica.num_asked == num_before + 1


def test_another_key_is_let_through(full: tuple[Replica, httpx.Client]) -> None:
    replica, client = full
    until_refused_in_front(client)
    num_before = replica.num_asked
    client.post("/translate", json=GREETING, headers={"Authorization": "Bearer other"})
    assert replica.num_asked == num_before + 1


def test_a_refusal_of_one_request_for_its_size_is_for_that_one(
    full: tuple[Replica, httpx.Client],
) -> None:
    replica, client = full
    replica.headers = {"Retry-After-Ms": "1200"}
    for _ in range(3):
        post(client)
    assert replica.num_asked == 3


def test_after_a_moment_the_replica_is_asked_again(full: tuple[Replica, httpx.Client]) -> None:
    replica, client = full
    until_refused_in_front(client)
    replica.status, replica.headers = 200, {}
    time.sleep(0.15)
    assert post(client).status_code == 200


def test_long_bodies_and_what_is_no_json_pass(world: tuple[Replica, httpx.Client]) -> None:
    replica, client = world
    replica.num_asked = 0
    answers = [
        client.post("/translate", content=json.dumps({"q": "x" * 100_000})),
        client.post("/translate", content=b"no { json"),
        client.post("/translate", data={"q": "a", "source": "en"}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    assert replica.num_asked == 3
