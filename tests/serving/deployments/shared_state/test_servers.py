"""Real servers behind one HAProxy that sends requests to them in turns, with their state in one
PostgreSQL: what is promised while servers, the database and the network between them fail.

Longer than by default: `OUTAGE_SECONDS=60 KILLS=20 pytest -m servers tests/serving/deployments/shared_state`
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from tests.postgresql import NEEDS_POSTGRESQL, PostgresqlProcess, running_postgresql
from tests.served import ROOT, eventually, int8_bundle
from tests.serving.deployments.parts import kill
from tests.serving.deployments.shared_state.clients import (
    EN_FR,
    Clients,
    prompts_batch,
    statuses,
)
from tests.serving.deployments.shared_state.proxies import (
    Proxy,
    connections_to,
    requests_in_turns,
)
from tests.serving.deployments.shared_state.servers import Server
from tests.small_disk import fill, make_room, small_disk

pytestmark = [pytest.mark.servers, NEEDS_POSTGRESQL, pytest.mark.timeout(900)]

OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "6"))
KILLS = int(os.environ.get("KILLS", "1"))
LIMIT = 500  # characters a month
MOMENT_SECONDS = 3.0
REFUSAL_SECONDS = 15.0
RECOVERY_SECONDS = 20.0


@dataclass
class Installation:
    """network: between the servers and the database. requests: between clients and servers."""

    postgresql: PostgresqlProcess
    database: str
    network: Proxy
    requests: Proxy
    servers: list[Server]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.requests.port}"

    def clients(self, key: str = "ann") -> Clients:
        return Clients(self.url, key)

    def execute(self, statement: str) -> None:
        self.postgresql.execute(statement, self.database)

    def counts(self, query: str) -> int:
        with psycopg.connect(self.postgresql.url(self.database)) as connection:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Two servers that run; a third one is at its port, but not started."""
    folder = tmp_path_factory.mktemp("installation")
    keys = (
        KeyEntry(name="ann", sha256=hash_key("ann")),
        KeyEntry(name="poor", sha256=hash_key("poor"), characters_per_month=LIMIT),
    )
    write_keys(folder / "keys.json", keys)
    bundle = int8_bundle("translator", "transformer", folder)
    group = {"bundles": [bundle], "cpus_per_replica": 1, "engines": 1, "threads": 1}
    config = {"access": {"keys": folder / "keys.json"}, "groups": [{"name": "only", **group}]}
    options = ("-c", "max_connections=40", "-c", "superuser_reserved_connections=0")
    with ExitStack() as stack:
        postgresql = stack.enter_context(running_postgresql(*options))
        database = postgresql.create_database().partition("///")[2].partition("?")[0]
        socket = postgresql.folder / ".s.PGSQL.5432"
        network = stack.enter_context(connections_to(socket, folder))
        state = f"postgresql://attendant@127.0.0.1:{network.port}/{database}"
        servers = [Server(folder / f"server-{number}", state, config) for number in range(3)]
        ports = [server.port for server in servers]
        requests = stack.enter_context(requests_in_turns(ports, folder))
        for server in servers:
            stack.callback(server.stop_if_running)
        for server in servers[:2]:
            server.launch()
        for server in servers[:2]:
            server.wait_until_ready()
        installation = Installation(postgresql, database, network, requests, servers)
        assert eventually(lambda: installation.clients().send("GET", "/ready").is_success)
        yield installation
        assert not any(server.has_state_of_its_own() for server in servers)


def direct(server: Server, key: str = "ann") -> Clients:
    return Clients(server.url, key)


def test_what_one_server_stores_the_others_have(installation: Installation) -> None:
    first, second = (direct(server) for server in installation.servers[:2])
    assert first.send_document().status_code == 200
    second.documents, first.documents = first.documents, []
    assert second.fetch_documents()

    terms = {"source_lang": "en", "target_lang": "fr", "entries": "dog\tchien"}
    body = {"name": "terms", "dictionaries": [{**terms, "entries_format": "tsv"}]}
    glossary = first.send("POST", "/v3/glossaries", json=body).json()["glossary_id"]
    listed = second.send("GET", "/v3/glossaries").json()["glossaries"]
    assert [item["glossary_id"] for item in listed] == [glossary]


def test_a_batch_of_one_server_is_read_at_the_other(installation: Installation) -> None:
    first, second = (direct(server) for server in installation.servers[:2])
    assert answers_of_batch(second, send_batch(first)) == [*map(str, range(40))]


def test_a_quota_is_exact_over_all_servers(installation: Installation) -> None:
    text = "A dog runs"
    clients = installation.clients("poor")

    def translate(_: int) -> int:
        return clients.send("POST", "/translate", json={"q": text, **EN_FR}).status_code

    with ThreadPoolExecutor(12) as pool:
        answered = list(pool.map(translate, range(2 * LIMIT // len(text))))
    assert {*answered} == {200, 429}
    assert answered.count(200) * len(text) == LIMIT
    for server in installation.servers[:2]:
        usage = direct(server, "poor").send("GET", "/v2/usage").json()
        assert usage["character_count"] == LIMIT


def send_batch(clients: Clients, num_lines: int = 40) -> str:
    """Return the id of a new batch."""
    files = {"file": ("in.jsonl", prompts_batch(num_lines))}
    file = clients.send("POST", "/v1/files", files=files, data={"purpose": "batch"}).json()["id"]
    wanted = {"endpoint": "/v1/completions", "completion_window": "24h"}
    body = {"input_file_id": file, **wanted}
    identity: str = clients.send("POST", "/v1/batches", json=body).json()["id"]
    return identity


def answers_of_batch(clients: Clients, identity: str) -> list[str]:
    """Return the ids of the lines that were answered, once all are."""
    batch: dict[str, Any] = {}

    def is_completed() -> bool:
        answer = clients.send("GET", f"/v1/batches/{identity}")
        batch.update(answer.json() if answer.is_success else {})
        return batch.get("status") == "completed"

    assert eventually(is_completed, 90), batch
    content = clients.send("GET", f"/v1/files/{batch['output_file_id']}/content").text
    lines = [json.loads(line) for line in content.splitlines()]
    assert {line["response"]["status_code"] for line in lines} == {200}
    return [line["custom_id"] for line in lines]


@contextmanager
def stopped(installation: Installation) -> Iterator[None]:
    installation.postgresql.stop()
    try:
        yield
    finally:
        installation.postgresql.start()


@contextmanager
def killed(installation: Installation) -> Iterator[None]:
    installation.postgresql.kill()
    try:
        yield
    finally:
        installation.postgresql.start()


@contextmanager
def paused(installation: Installation) -> Iterator[None]:
    installation.postgresql.pause()
    try:
        yield
    finally:
        installation.postgresql.resume()


@contextmanager
def cut_off(installation: Installation) -> Iterator[None]:
    installation.network.cut()
    try:
        yield
    finally:
        installation.network.mend()


@contextmanager
def read_only(installation: Installation) -> Iterator[None]:
    """As a primary server that was demoted."""
    url = installation.postgresql.url(options="-c default_transaction_read_only=off")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield
        finally:
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")


@contextmanager
def without_connections(installation: Installation) -> Iterator[None]:
    """Others hold all connections."""
    url = installation.postgresql.url()
    with ExitStack() as others:
        connections = [others.enter_context(psycopg.connect(url, autocommit=True))]

        def hold_all() -> None:
            while True:
                try:
                    connections.append(others.enter_context(psycopg.connect(url)))
                except psycopg.OperationalError:
                    return

        hold_all()
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            connections[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'attendant'"
            )
            hold_all()
        yield


@contextmanager
def full(installation: Installation) -> Iterator[None]:
    """The disk of its tables is full."""
    folder = installation.postgresql.folder
    with small_disk(folder / "disk", mib=64) as disk:
        shutil.chown(disk, *os.stat(folder)[4:6])
        execute = installation.execute
        execute(f"CREATE TABLESPACE small LOCATION '{disk}'")
        try:
            for kind in ("TABLE", "INDEX"):
                execute(f"ALTER {kind} ALL IN TABLESPACE pg_default SET TABLESPACE small")
            fill(disk)
            yield
        finally:
            make_room(disk)
            for kind in ("TABLE", "INDEX"):
                execute(f"ALTER {kind} ALL IN TABLESPACE small SET TABLESPACE pg_default")
            execute("DROP TABLESPACE small")


@pytest.mark.parametrize(
    "fail", [stopped, killed, paused, cut_off, read_only, without_connections, full]
)
def test_while_the_database_fails_requests_without_state_go_on_and_nothing_is_lost(
    installation: Installation, fail: Callable[[Installation], AbstractContextManager[None]]
) -> None:
    clients = installation.clients()
    with clients.running("translate", "translate", "glossaries", "document"):
        time.sleep(2)
        begun = time.monotonic()
        with fail(installation):
            time.sleep(OUTAGE_SECONDS)
            ended = time.monotonic()
        assert eventually(lambda: clients.send_document(1).is_success, RECOVERY_SECONDS)
        seconds_until_back = time.monotonic() - ended
        time.sleep(1)
    translations = clients.answers_of("translate")
    others = clients.answers_of("glossaries", begun) + clients.answers_of("document", begun)
    refused = [answer for answer in others if answer.status != 200]
    print(
        f"{fail.__name__}: {len(translations)} translations, the slowest in"
        f" {max(answer.seconds for answer in translations):.2f} s; {len(refused)} refused, the"
        f" slowest in {max((answer.seconds for answer in refused), default=0):.2f} s;"
        f" {len(clients.documents)} documents accepted; back {seconds_until_back:.2f} s after"
    )
    assert statuses(translations) == {200}, [a for a in translations if a.status != 200][0]
    assert statuses(refused) == {503}
    assert all(answer.retry_after for answer in refused)
    assert max(answer.seconds for answer in refused) < REFUSAL_SECONDS
    assert max(answer.seconds for answer in translations) < MOMENT_SECONDS
    clients.fetch_documents()
