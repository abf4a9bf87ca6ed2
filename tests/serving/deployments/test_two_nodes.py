"""A cluster of two nodes with a replica on each: the same bytes from both, a node that dies and
comes back under load, and a cable that is cut and healed: `pytest -m cluster`, as root.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from export.bundling.writer import export_checkpoint
from models.checkpoint import load_checkpoint
from serving.bundle.manifest import Precision
from tests.served import SHIPPED, eventually, int8_bundle
from tests.serving.deployments.two_nodes import (
    Cluster,
    can_make_nodes,
    each_has_a_replica,
    two_nodes,
)

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_make_nodes(), reason="needs root and network namespaces"),
]

DASHBOARD = "http://127.0.0.1:8265"
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
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    names = ("transformer-en-fr", "llama-en")
    return [int8_bundle(name, name.partition("-")[0], folder) for name in names]


@pytest.fixture(scope="module")
def cluster(bundles: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with two_nodes(tmp_path_factory.mktemp("c")) as cluster:
        told = apply(cluster, group(bundles, replicas=2))
        assert told.endswith("translators: running"), told
        assert each_has_a_replica(cluster, 60)
        yield cluster


def group(bundles: list[Path], **more: Any) -> dict[str, Any]:
    common = {"name": "translators", "device": "cpu", "cpus_per_replica": 1}
    return {**common, "bundles": [str(bundle) for bundle in bundles], **more}


def apply(cluster: Cluster, *groups: dict[str, Any], options: Sequence[str] = ()) -> str:
    """Return what `attendant deploy apply` tells, its last line last."""
    path = cluster.head.folder / "server.yaml"
    path.write_text(yaml.safe_dump({"port": 8000, "groups": [*groups]}))
    token = ["--token-file", str(cluster.token_file)]

    def applied() -> str:
        done = cluster.head.attendant(
            "deploy", "apply", DASHBOARD, "-c", str(path), *token, *options
        )
        return (done.stdout + done.stderr).strip()

    told = [applied()]

    def reaches_the_dashboard() -> bool:
        if "Connection refused" in told[-1]:
            told.append(applied())
        return "Connection refused" not in told[-1]

    assert eventually(reaches_the_dashboard, 60)
    return told[-1]


def bytes_of(url: str) -> list[bytes]:
    return [content_of(httpx.post(url + path, json=body, timeout=60)) for path, body in ASKED]


def content_of(answer: httpx.Response) -> bytes:
    """Without the name and the time that each completion gets."""
    assert answer.status_code == 200, answer.text
    return re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", answer.content)


def test_each_replica_answers_with_the_same_bytes(cluster: Cluster) -> None:
    (first,), (second,) = (node.replica_urls() for node in cluster.nodes)
    with cluster.head.clients(2) as pool:
        here, there = pool.map(bytes_of, (first, second))
    assert here == there
    assert len({*here}) == len(ASKED)


def test_smoke(cluster: Cluster) -> None:
    for node in cluster.nodes:
        done = node.attendant("deploy", "smoke", node.url)
        assert done.returncode == 0, done.stdout


def test_bundles_change_and_change_back_under_load(
    cluster: Cluster, bundles: list[Path], tmp_path: Path
) -> None:
    """No request fails; a fingerprint has always the same bytes, the old one those of before."""
    newer = [tmp_path / bundle.name for bundle in bundles]
    for path in newer:
        export_checkpoint(load_checkpoint(SHIPPED / path.name), path, Precision.FP32)
    is_over: list[bool] = []
    with cluster.head.clients(4) as pool:
        urls = [node.url for node in cluster.nodes] * 2
        answers = [pool.submit(keep_asking, url, is_over) for url in urls]
        try:
            time.sleep(2)
            for wanted in (newer, bundles):
                # There is no room for a third replica beside the two.
                told = apply(cluster, group(wanted, replicas=2), options=["--in-place"])
                assert told.endswith("translators: running"), told
                time.sleep(5)
        finally:
            is_over.append(True)
    found = [pair for answer in answers for pair in answer.result()]
    print(Counter(fingerprint for fingerprint, _ in found))
    assert len({*found}) == len({fingerprint for fingerprint, _ in found}) == 2
    for answer in answers:
        assert answer.result()[0] == answer.result()[-1]
    test_each_replica_answers_with_the_same_bytes(cluster)


def keep_asking(url: str, is_over: list[bool]) -> list[tuple[str, bytes]]:
    """Fingerprints, and what was said with them. An answer that is no 200 raises."""
    body = {**WRITER, "temperature": 0, "logprobs": 1, "max_tokens": 12}
    found = []
    while not is_over:
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        content = content_of(answer)
        found.append((answer.json()["system_fingerprint"], content))
    return found


def test_a_node_dies_under_load_and_comes_back(cluster: Cluster) -> None:
    with load(cluster) as answers:
        cluster.worker.kill_raylet()
        assert eventually(cluster.worker.has_ended, 30)
        time.sleep(10)
    assert all_have_ended(answers)
    with cluster.head.clients(1) as pool:
        assert pool.submit(write, cluster.head.url, 0).result() == "200"

    cluster.worker.clear()
    cluster.start_worker()
    assert each_has_a_replica(cluster, 120)
    test_each_replica_answers_with_the_same_bytes(cluster)


def test_a_cable_is_cut_and_healed_under_load(cluster: Cluster) -> None:
    with load(cluster) as answers:
        cluster.cable("down")
        time.sleep(8)
        cluster.cable("up")
        time.sleep(5)
    assert all_have_ended(answers)
    assert each_has_a_replica(cluster, 120)
    test_each_replica_answers_with_the_same_bytes(cluster)


@contextmanager
def load(cluster: Cluster) -> Iterator["list[Future[list[str]]]"]:
    """Keep both replicas busy for as long as the block runs."""
    is_over: list[bool] = []
    with cluster.head.clients(NUM_CLIENTS) as pool:
        answers = [
            pool.submit(keep_writing, cluster.head.url, number, is_over)
            for number in range(NUM_CLIENTS)
        ]
        try:
            time.sleep(2)
            yield answers
        finally:
            is_over.append(True)


def keep_writing(url: str, number: int, is_over: list[bool]) -> list[str]:
    kinds = []
    while not is_over:
        kinds.append(write(url, number))
        time.sleep(0.05)
    return kinds


def write(url: str, seed: int) -> str:
    """How a request ended; one that does not end raises.

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
