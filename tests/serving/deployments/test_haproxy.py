"""HAProxy as it is configured, before replicas that are none: it finds them, speaks for them when
they fail, and lets nobody in once the server stops.
"""

import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.deployments.environment import free_ports
from serving.deployments.haproxy import HAProxy, haproxy
from serving.deployments.haproxy_config import Front, ServedGroup
from serving.deployments.listening import Listening
from serving.errors import AttendantError
from tests.served import eventually, free_port

NEAR, FAR = ServedGroup("near", "near-1", ""), ServedGroup("far", "far-1", "/groups/far")


class Replica(BaseHTTPRequestHandler):
    """Answers with its application's name, and dies or waits if it is asked to."""

    protocol_version = "HTTP/1.1"  # HAProxy uses its connections again
    application: str
    is_ready = True
    may_die = True
    may_go_on: threading.Event

    def do_GET(self) -> None:
        if self.path == "/-/routes":
            self._answer(200, f'{{"/": "{self.application}"}}')
        elif self.path.endswith("/ready"):
            self._answer(200 if self.is_ready else 503, "{}")
        else:
            self._answer(200, self.application)

    def do_POST(self) -> None:
        if self.path.endswith("/die") and self.may_die:
            self.server.die()  # type: ignore[attr-defined]
            return
        self.may_go_on.wait(20)
        self._answer(200, self.application)

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


class Process(ThreadingHTTPServer):
    """Ends as one that is killed, with all of its connections."""

    def __init__(self, port: int, handler: type[Replica]) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def die(self) -> None:
        self.shutdown()
        self.socket.close()
        for connection in self.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asked has gone."""


@contextmanager
def replica(port: int, application: str) -> Iterator[type[Replica]]:
    class Own(Replica):
        may_go_on = threading.Event()

    own = Own
    own.application = application
    with Process(port, own) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield own
        own.may_go_on.set()
        server.shutdown()


@pytest.fixture
def front() -> Front:
    public, operations = (Listening("127.0.0.1", free_port()) for _ in range(2))
    *ports, metrics_port = free_ports(4)
    return Front(
        public, operations, 100, 1, range(ports[0], metrics_port), metrics_port, (NEAR, FAR)
    )


@contextmanager
def admitting(front: Front, folder: Path) -> Iterator[HAProxy]:
    with haproxy(front, folder) as proxy:
        proxy.admit()
        yield proxy


@pytest.fixture
def proxy(front: Front, tmp_path: Path) -> Iterator[HAProxy]:
    with admitting(front, tmp_path) as proxy:
        yield proxy


@pytest.fixture
def client(front: Front, proxy: HAProxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=front.public.url, timeout=20) as client:
        yield client


def is_served(client: httpx.Client, path: str = "/x") -> bool:
    return client.get(path).status_code == 200


def test_replicas_are_found_at_whatever_port(front: Front, client: httpx.Client) -> None:
    with replica(front.ports[2], "near-1"), replica(front.ports[0], "far-1"):
        # HAProxy takes servers for ready until it has asked each once.
        assert eventually(lambda: {client.get("/x").text for _ in range(10)} == {"near-1"})
        far = "/groups/far/x"
        assert eventually(lambda: {client.get(far).text for _ in range(10)} == {"far-1"})


def test_a_canary_gets_its_part_of_what_comes_to_the_root(front: Front, tmp_path: Path) -> None:
    canary = replace(front, groups=(NEAR, replace(FAR, canary_percent=25)))
    with (
        replica(front.ports[0], "near-1"),
        admitting(canary, tmp_path),
        httpx.Client(base_url=front.public.url, timeout=20) as client,
    ):
        # The canary is not there.
        assert eventually(lambda: {client.get("/x").text for _ in range(40)} == {"near-1"})
    with (
        replica(front.ports[0], "near-1"),
        replica(front.ports[1], "far-1"),
        admitting(canary, tmp_path),
        httpx.Client(base_url=front.public.url, timeout=20) as client,
    ):
        assert eventually(lambda: is_served(client, "/groups/far/x"))
        # The canary never answers for metrics: once the port it is at is known to be not near's.
        assert eventually(lambda: {client.get("/metrics").text for _ in range(20)} == {"near-1"})
        answers = Counter(client.get("/x").text for _ in range(400))
        assert {client.get("/groups/far/x").text for _ in range(20)} == {"far-1"}
    assert set(answers) == {"near-1", "far-1"}
    assert 60 <= answers["far-1"] <= 140  # 4.6 standard deviations around 100


def test_what_is_not_of_this_run_or_not_ready_gets_nothing(
    front: Front, client: httpx.Client
) -> None:
    with (
        replica(front.ports[0], "near-2"),
        replica(front.ports[1], "near-1") as loading,
        replica(front.ports[2], "near-1") as ready,
    ):
        loading.is_ready = False
        assert eventually(lambda: is_served(client))
        ready.is_ready = False
        assert eventually(lambda: not is_served(client))
        assert eventually(lambda: client.get("/x").status_code == 503, 2)
        assert {*client.get("/x").json()} == {*client.get("/v1/models").json()} == {"error"}
        assert isinstance(client.get("/v2/usage").json()["message"], str)  # as DeepL has it


@pytest.mark.parametrize("body", [b"", bytes(50_000)])
@pytest.mark.parametrize("path", ["/die", "/v1/die", "/groups/far/v1/die"])
def test_it_speaks_for_a_replica_that_dies(
    front: Front, client: httpx.Client, path: str, body: bytes
) -> None:
    """Also on a connection that has served a request before, and if it could not keep the body."""
    with replica(front.ports[0], "near-1"), replica(front.ports[1], "far-1"):
        assert eventually(lambda: is_served(client) and is_served(client, "/groups/far/x"))
        answers = [client.post(path, content=body), client.post(path)]

    for answer in answers:
        assert answer.status_code in (502, 503)
        assert answer.headers["content-type"] == "application/json"
        assert int(answer.headers["retry-after"]) > 0
        error = answer.json()["error"]
        assert isinstance(error, dict) == ("/v1/" in path)
        assert "try again" in (error["message"] if isinstance(error, dict) else error)


def test_a_request_that_kills_replicas_is_answered_too(front: Front, client: httpx.Client) -> None:
    with ExitStack() as replicas:
        for port in front.ports:
            replicas.enter_context(replica(port, "near-1"))
        assert eventually(lambda: is_served(client))
        assert eventually(lambda: all(is_served(client) for _ in range(10)))
        assert client.post("/die").status_code in (502, 503)
        assert client.get("/x").status_code in (200, 502, 503)


def test_another_replica_answers_what_one_has_not(front: Front, client: httpx.Client) -> None:
    with replica(front.ports[0], "near-1"), replica(front.ports[1], "near-1") as last:
        last.may_go_on.set()
        assert eventually(lambda: is_served(client))
        assert eventually(lambda: all(is_served(client) for _ in range(10)))
        last.may_die = False
        assert client.post("/die").text == "near-1"


def test_once_it_stops_what_is_in_progress_ends_and_nothing_begins(
    front: Front, proxy: HAProxy, client: httpx.Client
) -> None:
    with replica(front.ports[0], "near-1") as own:
        assert eventually(lambda: is_served(client))
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{front.public.url}/wait", timeout=20))
        )
        asking.start()
        assert eventually(lambda: proxy.num_in_progress() == 1)

        proxy.refuse()

        refused = client.get("/ready")
        assert (refused.status_code, refused.json()["error"]) == (
            503,
            "the server is stopping; try again",
        )
        assert refused.headers["retry-after"] and refused.headers["connection"] == "close"
        assert client.get("/health").status_code == 200
        assert httpx.get(f"{front.operations.url}/ready").status_code == 503
        assert httpx.get(f"{front.operations.url}/health").status_code == 200
        own.may_go_on.set()
        asking.join()
        assert answers[0].status_code == 200
        assert proxy.num_in_progress() == 0


PATHS = ("/ready", "/x", "/v1/models", "/v2/usage", "/groups/far/x")


def test_before_it_admits_only_health_is_answered(front: Front, tmp_path: Path) -> None:
    with (
        haproxy(front, tmp_path) as proxy,
        httpx.Client(base_url=front.public.url) as client,
        httpx.Client(base_url=front.operations.url) as operations,
    ):
        assert not proxy.finds_all_groups()
        with replica(front.ports[0], "near-1") as near, replica(front.ports[1], "far-1") as far:
            assert eventually(proxy.finds_all_groups)
            refused = [client.get(path) for path in PATHS] + [client.post("/v1/completions")]
            assert {answer.status_code for answer in refused} == {503}
            assert all(answer.headers["retry-after"] for answer in refused)
            assert refused[-1].json()["error"]["message"] == "the server is starting; try again"
            assert operations.get("/ready").json() == {"status": "not ready"}
            changed = operations.post("/models")
            assert changed.status_code == 503 and "is starting" in changed.json()["error"]
            for each in (client, operations):
                assert is_alive(each)

            proxy.admit()

            assert [client.get(path).status_code for path in PATHS] == [200] * len(PATHS)
            near.is_ready = far.is_ready = False
            assert eventually(lambda: client.get("/ready").status_code == 503)
            assert eventually(lambda: not proxy.finds_all_groups())
            assert is_alive(client)


def is_alive(client: httpx.Client) -> bool:
    got, head = client.get("/health"), client.head("/health")
    assert (head.status_code, head.content) == (200, b"")
    return (got.status_code, got.json()) == (200, {"status": "ok"})


def test_a_body_on_its_way_is_in_progress(front: Front, proxy: HAProxy) -> None:
    with (
        replica(front.ports[0], "near-1") as near,
        httpx.Client(base_url=front.public.url) as client,
        socket.create_connection((front.public.address, front.public.port)) as slow,
    ):
        near.may_go_on.set()
        assert eventually(lambda: is_served(client))
        assert proxy.num_in_progress() == 0  # though both connections are open
        slow.sendall(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab")
        assert eventually(lambda: proxy.num_in_progress() == 1)
        proxy.refuse()
        slow.sendall(b"cd")
        assert slow.recv(1000).startswith(b"HTTP/1.1 200 ")
        assert eventually(lambda: proxy.num_in_progress() == 0)


def test_who_would_wait_behind_many_is_refused_at_once(front: Front, tmp_path: Path) -> None:
    front = replace(front, groups=(replace(NEAR, most_at_once=2), FAR))
    url = f"{front.public.url}/v1/chat/completions"
    with (
        admitting(front, tmp_path),
        replica(front.ports[0], "near-1") as near,
        httpx.Client(timeout=20) as client,
        ThreadPoolExecutor(12) as pool,
    ):
        assert eventually(lambda: is_served(client, f"{front.public.url}/x"))
        answers = [pool.submit(httpx.post, url, timeout=20) for _ in range(12)]
        assert eventually(lambda: sum(answer.done() for answer in answers) >= 8)
        near.may_go_on.set()
        by_status = Counter(answer.result().status_code for answer in answers)
        assert by_status[200] >= 2 and by_status[429] >= 8 and by_status.total() == 12
        [refused, *_] = (each.result() for each in answers if each.result().status_code == 429)
        assert refused.headers["Retry-After"] == "1"
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"


def test_it_is_started_again_as_it_was(front: Front, proxy: HAProxy, client: httpx.Client) -> None:
    with replica(front.ports[0], "near-1"):
        assert eventually(lambda: is_served(client))
        proxy.refuse()
        os.kill(proxy.pid, signal.SIGKILL)
        proxy.stop()
        proxy.start()
        with httpx.Client(base_url=front.public.url) as another:
            assert eventually(lambda: another.get("/health").status_code == 200)
            assert another.get("/x").status_code == 503


def test_started_again_it_asks_no_port_at_which_nothing_listens(
    front: Front, tmp_path: Path
) -> None:
    *ports, _ = free_ports(12)
    with (
        replica(ports[5], "near-1"),
        admitting(replace(front, ports=range(ports[0], ports[-1] + 1)), tmp_path) as proxy,
        httpx.Client(base_url=front.public.url) as client,
    ):
        assert eventually(lambda: is_served(client))
        proxy.stop()
        proxy.start()
        assert {client.get("/x").status_code for _ in range(50)} == {200}


def test_where_it_cannot_listen_the_server_does_not_start(front: Front, tmp_path: Path) -> None:
    with (
        socket.create_server((front.public.address, front.public.port)),
        pytest.raises(AttendantError, match="HAProxy does not start"),
        admitting(front, tmp_path),
    ):
        pass


def test_one_that_always_dies_is_given_up(proxy: HAProxy) -> None:
    with pytest.raises(AttendantError, match="again and again"):
        for _ in range(10):
            proxy.stop()
            proxy.start()
