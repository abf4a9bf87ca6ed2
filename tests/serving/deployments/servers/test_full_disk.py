"""A real server whose state is on a disk that is full for a while."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.served import eventually, int8_bundle, served_with_console
from tests.small_disk import fill, make_room, small_disk

pytestmark = pytest.mark.servers

TEXT = b"A dog runs.\n" * 20
EN_FR = {"source": "en", "target": "fr"}
STATE = "the server cannot use its state now"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("small") / "disk") as folder:
        yield folder


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, disk: Path) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("server")
    bundle = int8_bundle("translator", "transformer", folder)
    config = {"groups": [{"name": "only", "bundles": [bundle]}], "state": str(disk / "state")}
    with (
        served_with_console(config, folder) as (url, _),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def send(client: httpx.Client, text: bytes = TEXT) -> httpx.Response:
    return client.post("/v2/document", files={"file": ("a.txt", text)}, data={"target_lang": "FR"})


def fetched(client: httpx.Client, handle: dict[str, str]) -> str:
    url, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    assert eventually(lambda: client.post(url, data=key).json()["status"] == "done", 60)
    return client.post(f"{url}/result", data=key).text


def test_a_full_disk_refuses_what_it_must_store_and_nothing_else(
    client: httpx.Client, disk: Path
) -> None:
    before = send(client).json()
    fill(disk)
    try:
        refused = [send(client)]
        jsonl = {"file": ("a.jsonl", TEXT)}
        refused.append(client.post("/v1/files", files=jsonl, data={"purpose": "batch"}))
        terms = {"source_lang": "en", "target_lang": "fr", "entries": "a\tb\n" * 1}
        body = {"name": "terms", "dictionaries": [{**terms, "entries_format": "tsv"}]}
        refused.append(client.post("/v3/glossaries", json=body))
        refused.append(client.post("/translate_file", files={"file": ("a.txt", TEXT)}, data=EN_FR))
        answers = [client.post("/translate", json={"q": "A dog.", **EN_FR}) for _ in range(3)]
    finally:
        make_room(disk)
    assert {(each.status_code, "retry-after" in each.headers) for each in refused} == {(503, True)}
    deepl, openai, glossary, libretranslate = (each.json() for each in refused)
    assert deepl["message"] == glossary["message"] == libretranslate["error"] == STATE
    assert openai["error"]["message"] == STATE
    assert {each.status_code for each in answers} == {200}
    texts = {fetched(client, handle) for handle in (before, send(client).json())}
    assert len(texts) == 1
