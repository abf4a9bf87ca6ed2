"""DeepL's documents: sent, asked after, fetched once, cancelled; by DeepL's own client too."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import deepl
import docx
import httpx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from fastapi import FastAPI

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.jobs.documents import Handle
from serving.server_config import DocumentLimits
from serving.storage.state import State
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.api.world import World

FIELDS = {"source_lang": "EN", "target_lang": "FR"}


@pytest.fixture
def access(state: State) -> dict[str, Any]:
    return {"state": state, "document_limits": DocumentLimits(max_characters=1000)}


@pytest.fixture
async def desk(tokenizer: Tokenizer, access: dict[str, Any]) -> AsyncIterator[World]:
    """A server that works on documents."""
    async with (
        made_world(tokenizer, access=access) as world,
        world.app.router.lifespan_context(world.app),
    ):
        yield world


async def send(world: World, name: str, data: bytes, **fields: Any) -> httpx.Response:
    files = {"file": (name, data)}
    return await world.client.post("/v2/document", files=files, data=FIELDS | fields)


async def status_of(world: World, handle: dict[str, str]) -> dict[str, Any]:
    key = {"document_key": handle["document_key"]}
    answer = await world.client.post(f"/v2/document/{handle['document_id']}", json=key)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def wait_until_ended(world: World, handle: dict[str, str]) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while (found := await status_of(world, handle))["status"] not in ("done", "error"):
            await asyncio.sleep(0.02)
    return found


async def result(world: World, handle: dict[str, str], **key: str) -> httpx.Response:
    body = {"document_key": handle["document_key"]} | key
    return await world.client.post(f"/v2/document/{handle['document_id']}/result", data=body)


async def test_a_document_is_fetched_once(desk: World) -> None:
    handle = (await send(desk, "a.txt", b"one\ntwo")).json()

    found = await wait_until_ended(desk, handle)
    fetched = await result(desk, handle)
    again = await result(desk, handle)

    assert found == {
        "document_id": handle["document_id"],
        "status": "done",
        "billed_characters": 6,
        "fragments": 2,
        "fragments_done": 2,
    }
    assert fetched.content == b"ONE\nTWO"
    assert (again.status_code, [*again.json()]) == (404, ["message", "field", "reason"])
    assert desk.services.documents.files.num_bytes() == 0


async def segments(world: World, handle: dict[str, str], **key: str) -> httpx.Response:
    body = {"document_key": handle["document_key"]} | key
    return await world.client.post(f"/v2/document/{handle['document_id']}/segments", json=body)


async def test_a_document_is_compared_with_its_translation_before_it_is_fetched(
    desk: World,
) -> None:
    handle = (await send(desk, "a.md", b"# One & all\n\nSome **bold** text.\n\n123")).json()
    await wait_until_ended(desk, handle)

    answer = await segments(desk, handle)
    assert answer.json()["segments"] == [
        {"source": "One & all", "target": "ONE & ALL"},
        {"source": "Some bold text.", "target": "SOME BOLD TEXT."},
    ]
    assert (await segments(desk, handle, document_key="wrong")).status_code == 404
    await result(desk, handle)
    assert (await segments(desk, handle)).status_code == 404


async def test_what_is_not_translated_yet_has_its_source_alone(desk: World) -> None:
    desk.translator_engine.gate = asyncio.Event()  # never set
    lines = "\n".join(f"l{number}" for number in range(150))
    handle = (await send(desk, "a.txt", lines.encode())).json()
    shown = (await segments(desk, handle)).json()["segments"]
    assert shown[0] == {"source": "l0", "target": None} and len(shown) == 100


async def test_of_two_who_fetch_at_the_same_moment_one_has_it(desk: World) -> None:
    handle = (await send(desk, "a.txt", b"one")).json()
    await wait_until_ended(desk, handle)
    answers = await asyncio.gather(*(result(desk, handle) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers)[:2] in ([200, 404], [200, 503])
    assert sum(answer.content == b"ONE" for answer in answers) == 1


async def test_a_document_that_was_not_sent_whole_can_be_fetched_again(desk: World) -> None:
    handle = (await send(desk, "a.txt", b"one")).json()
    await wait_until_ended(desk, handle)
    documents = desk.services.documents
    document_handle = Handle(handle["document_id"], handle["document_key"])
    taken_result = await documents.take_result(document_handle, "")

    meanwhile = await result(desk, handle)
    taken_result.file.close()
    await taken_result.mark_interrupted()
    fetched = await result(desk, handle)

    assert (meanwhile.status_code, meanwhile.headers["retry-after"]) == (503, "1")
    assert "fetched by another" in meanwhile.json()["message"]
    assert fetched.content == b"ONE"


async def test_a_document_in_progress(desk: World) -> None:
    desk.translator_engine.gate = asyncio.Event()
    handle = (await send(desk, "a.txt", b"one")).json()
    early = await result(desk, handle)
    wrong = await result(desk, handle, document_key="x")
    unnamed = await desk.client.post(f"/v2/document/{handle['document_id']}", json={})

    assert (early.status_code, early.headers["retry-after"]) == (503, "1")
    assert (wrong.status_code, unnamed.status_code) == (404, 400)
    assert (await status_of(desk, handle))["status"] in ("queued", "translating")
    desk.translator_engine.gate.set()
    await wait_until_ended(desk, handle)


@pytest.mark.parametrize("output_format", ["po", "pot"])
async def test_a_template_becomes_a_po_file(desk: World, output_format: str) -> None:
    """DeepL's client says so where the file that it writes is called a.po."""
    answer = await send(desk, "a.pot", b'msgid "one"\nmsgstr ""\n', output_format=output_format)

    assert answer.status_code == 200, answer.text


async def test_a_document_is_cancelled(desk: World) -> None:
    handle = (await send(desk, "a.txt", b"one")).json()
    path = f"/v2/document/{handle['document_id']}"

    wrong = await desk.client.delete(path, params={"document_key": "x"})
    right = await desk.client.delete(path, params={"document_key": handle["document_key"]})
    after = await result(desk, handle)

    assert (wrong.status_code, right.status_code, after.status_code) == (404, 204, 404)


@pytest.mark.parametrize(
    ("name", "data", "fields", "status"),
    [
        ("a.rtf", b"x", {}, 400),
        ("a.docx", b"PK", {}, 400),
        ("a.txt", b"ab " * 400, {}, 413),
        ("a.txt", b"a", {"target_lang": "XX"}, 400),
        ("a.txt", b"a", {"formality": "more"}, 400),
        ("a.txt", b"a", {"output_format": "docx"}, 400),
        ("a.txt", b"a", {"glossary_id": "none"}, 404),
        ("a.txt", b"a", {"glossary_ids": "a,b,c,d,e,f"}, 400),
        ("a.txt", b"a", {"glossary_id": "a", "glossary_ids": "b"}, 400),
        ("a.txt", b"a", {"style_id": "a"}, 400),
        ("a.txt", b"a", {"filename": "a.exe"}, 400),
        ("a.txt", b"a", {"model": "none"}, 404),
    ],
)
async def test_what_is_refused(
    desk: World, name: str, data: bytes, fields: dict[str, str], status: int
) -> None:
    answer = await send(desk, name, data, **fields)

    assert (answer.status_code, "message" in answer.json()) == (status, True), answer.text
    assert desk.services.documents.files.num_bytes() == 0


@pytest.fixture
def with_keys(tmp_path: Path, access: dict[str, Any]) -> dict[str, Any]:
    """Keys of two users; ann may use ten characters a month."""
    ann = KeyEntry(name="ann", sha256=hash_key("a"), characters_per_month=10)
    write_keys(tmp_path / "keys.json", (ann, KeyEntry(name="bob", sha256=hash_key("b"))))
    return {**access, "keys": KeyRing(tmp_path / "keys.json", {})}


async def test_documents_are_their_senders_and_count(
    tokenizer: Tokenizer, with_keys: dict[str, Any]
) -> None:
    async with made_world(tokenizer, access=with_keys) as world:
        world.client.headers["Authorization"] = "DeepL-Auth-Key a"
        handle = (await send(world, "a.txt", b"one two")).json()
        beyond = await send(world, "a.txt", b"three four")
        own_status = await status_of(world, handle)
        usage = (await world.client.get("/v2/usage")).json()
        world.client.headers["Authorization"] = "DeepL-Auth-Key b"
        others = await result(world, handle)
        world.client.headers["Authorization"] = "DeepL-Auth-Key c"
        unknown = await send(world, "a.txt", b"one")

    assert (beyond.status_code, own_status["status"]) == (456, "queued")
    assert usage["character_count"] == 7
    assert (others.status_code, unknown.status_code) == (404, 403)


async def test_a_glossary_holds_in_documents(desk: World) -> None:
    created = await desk.client.post(
        "/v2/glossaries",
        json={
            "name": "g",
            "source_lang": "en",
            "target_lang": "fr",
            "entries": "dog\thound",
            "entries_format": "tsv",
        },
    )
    identity = created.json()["glossary_id"]
    handle = (await send(desk, "a.txt", b"a red dog runs.", glossary_id=identity)).json()
    await wait_until_ended(desk, handle)

    assert (await result(desk, handle)).content == b"A RED hound RUNS."

    written = docx.Document()
    paragraph = written.add_paragraph("We saw the ")
    paragraph.add_run("dog").bold = True
    paragraph.add_run(" of a friend.")
    data = io.BytesIO()
    written.save(data)
    handle = (await send(desk, "a.docx", data.getvalue(), glossary_id=identity)).json()
    await wait_until_ended(desk, handle)
    content = io.BytesIO((await result(desk, handle)).content)
    assert docx.Document(content).paragraphs[0].text == "WE SAW THE hound OF A FRIEND."


async def test_the_fields_of_glossaries_may_be_repeated(desk: World) -> None:
    answer = await send(desk, "a.txt", b"a dog", glossary_ids=[str(item) for item in range(6)])

    assert (answer.status_code, answer.json()["message"][:16]) == (400, "glossary_ids: at")


def test_the_official_client(tokenizer: Tokenizer, access: dict[str, Any], tmp_path: Path) -> None:
    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with (
            made_world(tokenizer, access=access) as world,
            world.app.router.lifespan_context(world.app),
        ):
            yield world.app

    document = docx.Document()
    document.add_paragraph("One ").add_run("two").bold = True
    document.save(str(tmp_path / "in.docx"))
    with listening(app) as url:
        client = deepl.DeepLClient("key", server_url=url)
        translate_with_client(client, tmp_path)
        check_refusals(client)
    [paragraph] = docx.Document(str(tmp_path / "out.docx")).paragraphs
    assert [(run.text, run.bold) for run in paragraph.runs] == [("ONE ", None), ("deux", True)]


def translate_with_client(client: deepl.DeepLClient, folder: Path) -> None:
    first = client.create_glossary("a", "EN", "FR", {"two": "deux"})
    dictionary = MultilingualGlossaryDictionaryEntries("EN", "FR", {"two": "2", "dog": "chien"})
    second = client.create_multilingual_glossary("b", [dictionary])
    several: Any = {"source_lang": "EN", "target_lang": "FR", "glossary_ids": [first, second]}
    texts: Any = client.translate_text(["a two", "a dog"], **several)
    assert [text.text for text in texts] == ["A deux", "A chien"]
    paths = folder / "in.docx", folder / "out.docx"
    status = client.translate_document_from_filepath(*paths, **several)
    assert (status.done, status.billed_characters) == (True, 7)


def check_refusals(client: deepl.DeepLClient) -> None:
    with pytest.raises(deepl.DeepLException, match=r"there are: \.txt, "):
        client.translate_document_upload(b"x", target_lang="FR", filename="a.rtf")
    asked: Any = {"text": "a", "target_lang": "FR"}
    refused: dict[str, Callable[[], Any]] = {
        "style_id": lambda: client.translate_text(**asked, style_rule="x"),
        "custom_instructions": lambda: client.translate_text(**asked, custom_instructions=["x"]),
        "style_rules": client.get_all_style_rules,
        "rephrase": lambda: client.rephrase_text("a"),
        "correct": lambda: client.correct_text("a"),
    }
    for reason, call in refused.items():
        with pytest.raises(deepl.DeepLException, match=f"message: {reason}: .*models? here"):
            call()


async def test_worse_translations_are_marked(desk: World) -> None:
    for threshold, is_fuzzy in (("0", False), ("1", True)):
        handle = (await send(desk, "a.po", PO, quality_threshold=threshold)).json()
        assert (await wait_until_ended(desk, handle))["status"] == "done"
        assert (b"#, fuzzy" in (await result(desk, handle)).content) == is_fuzzy


PO = b'msgid "a dog"\nmsgstr ""\n'


@pytest.mark.parametrize(
    ("name", "value"), [("a.po", "1.1"), ("a.po", "nan"), ("a.po", "high"), ("a.txt", "0.5")]
)
async def test_wrong_quality_thresholds(desk: World, name: str, value: str) -> None:
    answer = await send(desk, name, PO, quality_threshold=value)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("quality_threshold: ")
