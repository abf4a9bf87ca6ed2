"""Real servers behind one HAProxy that sends requests to them in turns, with their state in one
PostgreSQL: what is promised while servers, the database and the network between them fail.

Longer than by default with `OUTAGE_SECONDS=60 KILLS=20 pytest -m servers FILE`.
"""

import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from tests.postgresql import NEEDS_POSTGRESQL, running_postgresql
from tests.served import ROOT, eventually, int8_bundle
from tests.serving.deployments.parts import kill
from tests.serving.deployments.shared_state.clients import (
    EN_FR,
    TEXTS,
    Answer,
    Clients,
    prompts_batch,
    statuses,
)
from tests.serving.deployments.shared_state.database_failures import (
    cut_off,
    full,
    killed,
    paused,
    read_only,
    stopped,
    without_connections,
)
from tests.serving.deployments.shared_state.installation import Installation
from tests.serving.deployments.shared_state.proxies import (
    connections_to,
    requests_in_turns,
)
from tests.serving.deployments.shared_state.servers import Server

pytestmark = [pytest.mark.servers, NEEDS_POSTGRESQL, pytest.mark.timeout(900)]

OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "6"))
KILLS = int(os.environ.get("KILLS", "1"))
LIMIT = 500  # characters a month
MOMENT_SECONDS = 10.0  # on a machine that is busy otherwise
REFUSAL_SECONDS = 15.0
RECOVERY_SECONDS = 20.0


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
    group["max_wait_seconds"] = 60  # a machine that is busy otherwise refuses nothing
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
        assert eventually(installation.clients().is_answered)
        yield installation
        assert not any(server.has_state_of_its_own() for server in servers)


def direct(server: Server, key: str = "ann") -> Clients:
    return Clients(server.url, key)


def test_what_one_server_stores_the_others_have(installation: Installation) -> None:
    first, second = (direct(server) for server in installation.servers[:2])
    assert first.send_document().status_code == 200
    second.documents, first.documents = first.documents, []
    assert installation.count("SELECT count(*) FROM attendant.stored_files")
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


@pytest.mark.parametrize(
    "fail", [stopped, killed, paused, cut_off, read_only, without_connections, full]
)
def test_while_the_database_fails_requests_without_state_go_on_and_nothing_is_lost(
    installation: Installation, fail: Callable[[Installation], AbstractContextManager[None]]
) -> None:
    clients = installation.clients()
    with clients.running("translate", "translate", "glossaries", "document", "file"):
        time.sleep(3)
        begun = time.monotonic()
        with fail(installation):
            time.sleep(OUTAGE_SECONDS)
            ended = time.monotonic()
        assert eventually(lambda: clients.send_document(1).is_success, RECOVERY_SECONDS)
        seconds_until_back = time.monotonic() - ended
        time.sleep(1)
    translations = clients.answers_of("translate")
    before = [answer.seconds for answer in translations if answer.begun < begun]
    during = [answer.seconds for answer in translations if begun <= answer.begun < ended]
    kinds = ("glossaries", "document", "file")
    refused = failures([answer for kind in kinds for answer in clients.answers_of(kind, begun)])
    print(
        f"{fail.__name__}: translations in {median(before):.2f} s (median), then {len(during)} in"
        f" {median(during):.2f} s, the slowest {max(during):.2f} s; {len(refused)} refused, the"
        f" slowest in {max((answer.seconds for answer in refused), default=0):.2f} s;"
        f" {len(clients.documents)} documents accepted; back after {seconds_until_back:.2f} s"
    )
    assert statuses(translations) == {200}, failures(translations)
    assert statuses(refused) == {503}, refused
    assert all(answer.retry_after for answer in refused)
    assert max(answer.seconds for answer in refused) < REFUSAL_SECONDS
    assert median(during) < 2 * median(before) + 0.5
    assert max(during) < MOMENT_SECONDS
    clients.fetch_documents()
    clients.fetch_files()


_NOTE_REPEATED = """
CREATE TABLE public.repeated (job TEXT, number BIGINT);
CREATE FUNCTION public.note_repeated() RETURNS trigger AS $$
BEGIN
    INSERT INTO public.repeated
        SELECT job, number FROM attendant.results WHERE job = NEW.job AND number = NEW.number;
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note_repeated BEFORE INSERT ON attendant.results
    FOR EACH ROW EXECUTE FUNCTION public.note_repeated();
"""
_FORGET_REPEATED = "DROP FUNCTION public.note_repeated CASCADE; DROP TABLE public.repeated"


def test_servers_and_replicas_that_are_killed_lose_nothing_and_repeat_nothing(
    installation: Installation,
) -> None:
    clients = installation.clients()
    first, second = installation.servers[:2]
    choose = random.Random(7)
    installation.execute(_NOTE_REPEATED)
    batch = send_batch(direct(first), 400)
    with clients.running("translate", "translate", "glossaries", "document"):
        for _ in range(KILLS):
            clients.send_document(400)
            time.sleep(choose.uniform(0.5, 3))
            first.kill()
            first.start()
            time.sleep(choose.uniform(0.5, 2))
            kill(second.pid, "replica")
            time.sleep(1)
            assert eventually(direct(second).is_answered, 120), second.console
            first, second = second, first
    translations = clients.answers_of("translate")
    assert statuses(clients.answers) <= {200, 502, 503}, failures(clients.answers)
    texts = {answer.text for answer in translations if answer.status == 200}
    assert len(texts) <= len(TEXTS)
    answered = sorted(answer.begun for answer in translations if answer.status == 200)
    longest_pause = max(after - before for before, after in pairwise(answered))
    print(
        f"{2 * KILLS} kills: {len(clients.answers)} requests, {len(failures(clients.answers))}"
        f" failed, {len(clients.documents)} documents; nothing was translated for"
        f" {longest_pause:.1f} s at most"
    )
    assert longest_pause < MOMENT_SECONDS
    clients.fetch_documents()
    assert answers_of_batch(clients, batch) == [*map(str, range(400))]
    assert installation.count("SELECT count(*) FROM attendant.results") >= 400
    assert installation.count("SELECT count(*) FROM public.repeated") == 0
    installation.execute(_FORGET_REPEATED)


def test_a_rolling_change_of_versions_and_back(installation: Installation, tmp_path: Path) -> None:
    """The new version has one migration more, which the old one can live with."""
    shutil.copytree(ROOT / "serving", tmp_path / "serving")
    with (tmp_path / "serving" / "jobs" / "table.py").open("a") as file:
        migration = 'Migration("ALTER TABLE jobs ADD COLUMN note TEXT;")'
        file.write(f"\nSCHEMA.migrations.append({migration})  # type: ignore[attr-defined]\n")
    version = "SELECT version FROM attendant.schema_versions WHERE name = 'jobs'"
    old_version = installation.count(version)
    first, _, third = installation.servers
    clients = installation.clients()
    with clients.running("translate", "translate", "glossaries", "document"):
        third.code = tmp_path
        third.start()
        clients.send_document(200)
        take_out(installation, first)
        clients.send_document(200)
        first.start()
        installation.requests.use(first.port)
        time.sleep(2)
        take_out(installation, third)
    assert installation.count(version) == old_version + 1
    assert statuses(clients.answers) == {200}, failures(clients.answers)
    print(f"{len(clients.answers)} requests, {len(clients.documents)} documents")
    clients.fetch_documents()


def take_out(installation: Installation, server: Server) -> None:
    """Send no more requests to a server, and stop it, as an orchestrator does."""
    installation.requests.drain(server.port)
    time.sleep(1)
    server.stop()


def failures(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status != 200]
