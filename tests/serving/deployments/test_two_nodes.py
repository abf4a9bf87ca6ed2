"""A cluster of two nodes with a replica on each: the same bytes from both; a node and the head that
lose their power under load and come back, and a cable that is cut and mended. `pytest -m cluster`,
as root.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import yaml

from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from tests.cache import export_cached
from tests.served import SHIPPED, eventually
from tests.serving.deployments.deploy_page import can_run_the_page
from tests.serving.deployments.hosts import MODELS
from tests.serving.deployments.sent_documents import send_long_document
from tests.serving.deployments.two_nodes import Cluster, two_nodes

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not can_run_the_page(), reason="needs root, namespaces, PostgreSQL 15 and Redis of Debian"
    ),
]

NAMES = ("transformer-en-fr", "llama-en")
SERVE_API = "http://one:8265/api/serve/applications/"
TRANSLATE = {"source": "en", "target": "fr"}
TEXTS = ["A dog runs.", "Two men are talking on the street.", "A woman in a red coat is reading."]
WRITER = {"model": "llama-en", "prompt": "It was"}
ASKED = [
    *(("/translate", {"q": text, **TRANSLATE}) for text in TEXTS),
    ("/translate", {"q": TEXTS, "num_beams": 4, "alternatives": 3, **TRANSLATE}),
    ("/translate", {"q": TEXTS, "temperature": 1.0, "seed": 3, **TRANSLATE}),
    ("/score", {"q": TEXTS[0], "translations": ["Un chien court.", "Un chat."], **TRANSLATE}),
    ("/v1/completions", {**WRITER, "temperature": 0, "logprobs": 3}),
    ("/v1/completions", {**WRITER, "temperature": 1.0, "seed": 7, "n": 3}),
]
WRITE = {**WRITER, "max_tokens": 60, "ignore_eos": True, "n": 4}
NUM_CLIENTS = 8


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    models = tmp_path_factory.mktemp("models")
    for name in NAMES:
        checkpoint = load_checkpoint(SHIPPED / name)
        export_cached(checkpoint, models / "int8" / name, Precision.INT8)
        export_cached(checkpoint, models / "fp32" / name, Precision.FP32)
    with two_nodes(tmp_path_factory.mktemp("c"), models) as cluster:
        report = apply(cluster, group("int8", replicas=2))
        assert report.endswith("translators: running"), report
        assert cluster.has_a_replica_on_each(60)
        yield cluster


def group(precision: str, **changes: Any) -> dict[str, Any]:
    common = {"name": "translators", "device": "cpu", "cpus_per_replica": 2}
    return {**common, "bundles": [str(MODELS / precision / name) for name in NAMES], **changes}


def apply(cluster: Cluster, *groups: dict[str, Any], options: Sequence[str] = ()) -> str:
    """Return what `attendant deploy apply` writes, once the dashboard can be reached."""
    assert cluster.has_a_dashboard(300)
    return apply_once(cluster, *groups, options=options)


def apply_once(cluster: Cluster, *groups: dict[str, Any], options: Sequence[str] = ()) -> str:
    return cluster.apply(yaml.safe_dump({"port": 8000, "groups": [*groups]}), *options)


def bytes_of(url: str) -> list[bytes]:
    return [content_of(httpx.post(url + path, json=body, timeout=60)) for path, body in ASKED]


def content_of(answer: httpx.Response) -> bytes:
    """Without the name and the time that each completion gets."""
    assert answer.status_code == 200, answer.text
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", answer.content)


def test_each_replica_answers_with_the_same_bytes(cluster: Cluster) -> None:
    (first,), (second,) = (node.replica_urls(cluster.client) for node in cluster.nodes)
    with cluster.client.clients(2) as pool:
        of_head, of_worker = pool.map(bytes_of, (first, second))
    assert of_head == of_worker
    assert len({*of_head}) == len(ASKED)


def test_smoke(cluster: Cluster) -> None:
    for node in cluster.nodes:
        done = cluster.client.attendant("deploy", "smoke", node.url)
        assert done.returncode == 0, done.stdout


def test_bundles_change_and_change_back_under_load(cluster: Cluster) -> None:
    """No request fails; a fingerprint has always the same bytes, the old one those of before."""
    is_over: list[bool] = []
    with cluster.client.clients(4) as pool:
        urls = [node.url for node in cluster.nodes] * 2
        answers = [pool.submit(keep_asking, url, is_over) for url in urls]
        try:
            time.sleep(2)
            for precision in ("fp32", "int8"):
                # There is no room for a third replica beside the two.
                report = apply(cluster, group(precision, replicas=2), options=["--in-place"])
                assert report.endswith("translators: running"), report
                time.sleep(5)
        finally:
            is_over.append(True)
    pairs = [pair for answer in answers for pair in answer.result()]
    print(Counter(fingerprint for fingerprint, _ in pairs))
    assert len({*pairs}) == len({fingerprint for fingerprint, _ in pairs}) == 2
    for answer in answers:
        assert answer.result()[0] == answer.result()[-1]
    test_each_replica_answers_with_the_same_bytes(cluster)


def keep_asking(url: str, is_over: list[bool]) -> list[tuple[str, bytes]]:
    """Return fingerprints with the bytes of their answers. Raise for an answer that is no 200."""
    body = {**WRITER, "temperature": 0, "logprobs": 1, "max_tokens": 12}
    pairs = []
    while not is_over:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        content = content_of(answer)
        pairs.append((answer.json()["system_fingerprint"], content))
    return pairs


def test_a_node_loses_its_power_under_load_and_comes_back(cluster: Cluster) -> None:
    with load(cluster, cluster.head.url) as answers:
        cluster.worker.host.cut_power()
        time.sleep(10)
    assert all_have_ended(answers)
    with cluster.client.clients(1) as pool:
        assert pool.submit(write, cluster.head.url, 0).result() == "200"

    cluster.worker.boot()
    assert cluster.has_a_replica_on_each(180)
    test_each_replica_answers_with_the_same_bytes(cluster)


def test_a_cable_is_cut_and_mended_under_load(cluster: Cluster) -> None:
    with load(cluster, cluster.head.url) as answers:
        cluster.worker.host.cut_cable()
        time.sleep(8)
        cluster.worker.host.mend_cable()
        time.sleep(5)
    assert all_have_ended(answers)
    assert cluster.has_a_replica_on_each(120)
    test_each_replica_answers_with_the_same_bytes(cluster)


def test_the_head_loses_its_power_under_load_and_comes_back(cluster: Cluster) -> None:
    """The other node answers meanwhile, and its replica is the same process after that."""
    replicas = cluster.worker.replica_pids()
    with load(cluster, cluster.worker.url) as answers:
        cluster.head.host.cut_power()
        time.sleep(20)
    assert all_have_ended(answers)
    with cluster.client.clients(NUM_CLIENTS) as pool:
        kinds = [*pool.map(partial(write, cluster.worker.url), range(2 * NUM_CLIENTS))]
        metrics = pool.submit(httpx.get, f"{cluster.worker.url}/metrics", timeout=60).result()
    assert kinds == ["200"] * len(kinds)
    assert "attendant_requests_total{" in metrics.text
    report = apply_once(cluster, group("int8", replicas=2))
    assert report == f"attendant: {SERVE_API}: [Errno 113] No route to host"

    cluster.head.boot()
    assert cluster.has_a_replica_on_each(420)
    assert cluster.worker.replica_pids() == replicas
    test_each_replica_answers_with_the_same_bytes(cluster)
    report = apply(cluster, group("int8", replicas=2))
    assert report.endswith("translators: running"), report
    assert cluster.worker.replica_pids() == replicas


def test_a_replica_that_dies_while_the_head_is_away_is_replaced_when_it_is_back(
    cluster: Cluster,
) -> None:
    cluster.head.host.cut_power()
    for pid in cluster.worker.replica_pids():
        os.kill(pid, signal.SIGKILL)
    time.sleep(15)
    assert cluster.worker.replica_pids() == []
    with cluster.client.clients(1) as pool:
        assert pool.submit(write, cluster.worker.url, 0).result() == "500"

    cluster.head.boot()
    assert cluster.has_a_replica_on_each(420)
    test_each_replica_answers_with_the_same_bytes(cluster)


def test_a_document_that_is_sent_to_one_node_is_fetched_from_the_other(cluster: Cluster) -> None:
    (first,), (second,) = (node.replica_urls(cluster.client) for node in cluster.nodes)
    with cluster.client.clients(1) as pool:
        for url, other in ((first, second), (second, first)):
            document = pool.submit(send_long_document, url, 100).result()
            assert pool.submit(document.fetch_numbers, other).result() == document.numbers


def test_a_glossary_of_one_node_is_listed_by_the_other(cluster: Cluster) -> None:
    body = {"name": "a", "source_lang": "en", "target_lang": "fr", "entries": "dog\tchienne"}
    (first,), (second,) = (node.replica_urls(cluster.client) for node in cluster.nodes)
    with cluster.client.clients(1) as pool:
        sent = {**body, "entries_format": "tsv"}
        created = pool.submit(httpx.post, f"{first}/v2/glossaries", json=sent).result().json()
        listed = pool.submit(httpx.get, f"{second}/v2/glossaries").result().json()
    assert [glossary["glossary_id"] for glossary in listed["glossaries"]] == [
        created["glossary_id"]
    ]


def test_the_other_node_finishes_the_document_of_a_replica_that_is_killed(
    cluster: Cluster,
) -> None:
    """Whichever of them translates it: the killed one is the one that has begun."""
    (first,), (second,) = (node.replica_urls(cluster.client) for node in cluster.nodes)
    with cluster.client.clients(1) as pool:
        document = pool.submit(send_long_document, first).result()
        assert pool.submit(eventually, lambda: document.is_begun(first), 60).result()
        for pid in cluster.head.replica_pids():
            os.kill(pid, signal.SIGKILL)
        assert pool.submit(document.fetch_numbers, second).result() == document.numbers
    assert cluster.has_a_replica_on_each(120)


@contextmanager
def load(cluster: Cluster, url: str) -> Iterator["list[Future[list[str]]]"]:
    """Keep both replicas busy for as long as the block runs."""
    is_over: list[bool] = []
    with cluster.client.clients(NUM_CLIENTS) as pool:
        answers = [pool.submit(keep_writing, url, number, is_over) for number in range(NUM_CLIENTS)]
        try:
            time.sleep(2)
            yield answers
        finally:
            is_over.append(True)


def keep_writing(url: str, seed: int, is_over: list[bool]) -> list[str]:
    kinds = []
    while not is_over:
        kinds.append(write(url, seed))
        time.sleep(0.05)
    return kinds


def write(url: str, seed: int) -> str:
    """Return how a request ended. Raise for one that does not end.

    Errors are those of Ray's own HAProxy: a plain 500, or a connection that it closes.
    """
    body = {**WRITE, "seed": seed}
    try:
        return str(httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return "closed"


def all_have_ended(answers: "list[Future[list[str]]]") -> bool:
    """At most one of each client, which waits for one answer at a time, came to nothing."""
    counts = Counter(kind for answer in answers for kind in answer.result())
    print(counts)
    num_failed = counts.total() - counts["200"]
    return num_failed <= NUM_CLIENTS and {*counts} <= {"200", "500", "closed"}
