"""The section of docs/deploy.md that leads from one machine to three, with its commands as they
stand there, on five hosts. `pytest -m cluster`, as root.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from tests.cache import export_cached
from tests.served import SHIPPED, eventually
from tests.serving.deployments import deploy_page
from tests.serving.deployments.deploy_page import blocks_below, can_run_the_page
from tests.serving.deployments.hosts import MODELS, Host, hosts
from tests.serving.deployments.sent_documents import SentDocument, send_long_document

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not can_run_the_page(), reason="needs root, namespaces, PostgreSQL 15 and Redis of Debian"
    ),
]

BUNDLE = "transformer-en-fr-int8"
NUM_CLIENTS = 4


@dataclass
class Machines:
    servers: list[Host]
    db: Host
    front: Host

    def are_ready(self) -> bool:
        urls = [url_of(host) for host in (*self.servers, self.front)]
        return eventually(lambda: self.front.ready_urls(urls) == urls, 240)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    models = tmp_path_factory.mktemp("models")
    export_cached(load_checkpoint(SHIPPED / "transformer-en-fr"), models / BUNDLE, Precision.INT8)
    with hosts(tmp_path_factory.mktemp("h"), models, "one", "two", "three", "db", "front") as five:
        *servers, db, front = five
        for host in five:
            deploy_page.prepare(host, MODELS)
        deploy_page.install_packages(db)
        deploy_page.run(db, *blocks_below("PostgreSQL"))
        for host in servers:
            start_server(host)
        deploy_page.run(front, *blocks_below("HAProxy"))
        machines = Machines(servers, db, front)
        assert machines.are_ready(), [(host.folder / "server.log").read_text() for host in servers]
        yield machines


def url_of(host: Host) -> str:
    return f"http://{host.address}:8000"


def start_server(host: Host) -> None:
    (command,) = blocks_below("Servers")
    deploy_page.start(host, command, log="server.log")


def test_the_page_is_tried(machines: Machines) -> None:
    output = deploy_page.run(machines.front, *blocks_below("Try it"))
    answer, handle = output.replace("}{", "}\n{").split("\n")
    assert "chien" in json.loads(answer)["translatedText"]
    with machines.front.clients(1) as pool:
        document = SentDocument(json.loads(handle))
        for host in machines.servers:
            assert pool.submit(document.is_done, url_of(host)).result()
        assert pool.submit(document.fetch, url_of(machines.servers[2])).result()


def test_a_glossary_of_one_server_is_listed_by_the_others(machines: Machines) -> None:
    body = {"name": "a", "source_lang": "en", "target_lang": "fr", "entries": "dog\tchienne"}
    body["entries_format"] = "tsv"
    urls = [url_of(host) for host in machines.servers]
    with machines.front.clients(1) as pool:
        created = pool.submit(httpx.post, f"{urls[0]}/v2/glossaries", json=body).result()
        assert created.status_code == 201, created.text
        answers = [pool.submit(httpx.get, f"{url}/v2/glossaries").result() for url in urls]
    for answer in answers:
        (glossary,) = answer.json()["glossaries"]
        assert glossary["glossary_id"] == created.json()["glossary_id"]


def test_another_server_finishes_a_document_when_one_loses_its_power(machines: Machines) -> None:
    """Clients of HAProxy get answers meanwhile: at most those lose one whom that server answers."""
    one, two, _ = machines.servers
    with machines.front.clients(1) as pool:
        document = pool.submit(send_long_document, url_of(one)).result()
        assert pool.submit(eventually, lambda: document.is_begun(url_of(one)), 60).result()
        with load(machines) as kinds:
            one.cut_power()
            time.sleep(10)
        assert pool.submit(document.fetch_numbers, url_of(two)).result() == document.numbers
    assert_all_have_ended(kinds)

    one.boot()
    start_server(one)
    assert machines.are_ready()


def test_another_server_finishes_a_document_when_the_cable_of_one_is_cut(
    machines: Machines,
) -> None:
    """It comes back by itself once the cable is mended, and the document was finished once."""
    one, two, _ = machines.servers
    with machines.front.clients(1) as pool:
        document = pool.submit(send_long_document, url_of(one)).result()
        assert pool.submit(eventually, lambda: document.is_begun(url_of(one)), 60).result()
        with load(machines) as kinds:
            one.cut_cable()
            assert pool.submit(eventually, lambda: document.is_done(url_of(two)), 240).result()
            one.mend_cable()
            time.sleep(5)
        assert machines.are_ready()
        assert pool.submit(document.fetch_numbers, url_of(one)).result() == document.numbers
    assert_all_have_ended(kinds)


@contextmanager
def load(machines: Machines) -> Iterator[list[str]]:
    """Send requests to HAProxy for as long as the block runs; yield how they end."""
    kinds: list[str] = []
    is_over: list[bool] = []

    def keep_asking(number: int) -> None:
        while not is_over:
            number += 1
            kinds.append(ask(url_of(machines.front), number))
            time.sleep(0.1)

    with machines.front.clients(NUM_CLIENTS) as pool:
        clients = [pool.submit(keep_asking, number * 1000) for number in range(NUM_CLIENTS)]
        try:
            time.sleep(2)
            yield kinds
        finally:
            is_over.append(True)
    for client in clients:
        client.result()


def ask(url: str, number: int) -> str:
    """Return how a request ended. Raise for one that does not end."""
    body = {"q": f"A dog runs to house number {number}.", "source": "en", "target": "fr"}
    try:
        return str(httpx.post(f"{url}/translate", json=body, timeout=60).status_code)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return "closed"


def assert_all_have_ended(kinds: list[str]) -> None:
    counts = Counter(kinds)
    print(counts)
    assert counts.total() - counts["200"] <= NUM_CLIENTS, counts
    assert counts["200"] > NUM_CLIENTS
