"""LibreTranslate's files: sent, waited for and fetched, by its own client too."""

import asyncio
import zipfile
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import docx
import httpx
import pytest

from serving.server_config import DocumentLimits
from serving.storage.state import State
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}
NO_ARCHIVE = 'file: is damaged, or not what its name says: it is no whole ZIP archive (got "a.'


@pytest.fixture
async def desk(tokenizer: Tokenizer, state: State) -> AsyncIterator[World]:
    """A server that works on documents."""
    limits = DocumentLimits(max_mib=1, max_characters=1000)
    access = {"state": state, "document_limits": limits}
    async with (
        made_world(tokenizer, access=access) as world,
        world.app.router.lifespan_context(world.app),
    ):
        yield world


async def send(world: World, name: str, data: bytes, **fields: Any) -> httpx.Response:
    files = {"file": (name, data)}
    return await world.client.post("/translate_file", files=files, data=EN_FR | fields)


async def test_a_file_is_translated_and_fetched(desk: World) -> None:
    answer = await send(desk, "a.html", b"<p>One <b>two</b> three.<p>Four.")

    url = answer.json()["translatedFileUrl"]
    fetched = await desk.client.get(url)
    again = await desk.client.get(url)

    assert url.startswith("http://attendant/download_file/") and url.endswith(".html")
    assert fetched.content == again.content == b"<p>ONE <b>TWO</b> THREE.<p>FOUR."
    assert fetched.headers["content-type"].startswith("text/html")
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''a.html"


@pytest.mark.parametrize(
    ("headers", "start"),
    [
        ({"X-Forwarded-Host": "mt.example"}, "http://mt.example/download_file/"),
        ({"X-Forwarded-Host": "mt.example:8443, inner"}, "http://mt.example:8443/download_file/"),
        (
            {"X-Forwarded-Host": "mt.example", "X-Forwarded-Prefix": "/mt/"},
            "http://mt.example/mt/download_file/",
        ),
        ({"X-Forwarded-Host": "a b/../<script>"}, "http://attendant/download_file/"),
        ({"X-Forwarded-Prefix": "//evil.example"}, "http://attendant/download_file/"),
    ],
)
async def test_behind_a_proxy_the_link_is_one_that_the_client_can_follow(
    desk: World, headers: dict[str, str], start: str
) -> None:
    files = {"file": ("a.txt", b"one")}
    answer = await desk.client.post("/translate_file", files=files, data=EN_FR, headers=headers)

    assert answer.json()["translatedFileUrl"].startswith(start)


async def test_a_template_of_gettext_becomes_a_po_file(desk: World) -> None:
    answer = await send(desk, "a.pot", b'msgid "One"\nmsgstr ""\n')

    url = answer.json()["translatedFileUrl"]
    fetched = await desk.client.get(url)

    assert url.endswith(".po")
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''a.po"
    assert b'#, fuzzy\nmsgid "One"\nmsgstr "ONE"\n' in fetched.content


@pytest.mark.parametrize("source", ["en", "auto"])
async def test_a_file_in_an_old_encoding(desk: World, source: str) -> None:
    data = "The señor drinks a “café”.".encode("cp1252")

    answer = await send(desk, "a.txt", data, source=source)

    fetched = await desk.client.get(answer.json()["translatedFileUrl"])
    assert fetched.content.decode("cp1252") == "THE SEÑOR DRINKS A “CAFÉ”."


async def test_a_docx(desk: World) -> None:
    document = docx.Document()
    document.add_paragraph("One ").add_run("two").bold = True
    whole = BytesIO()
    document.save(whole)

    answer = await send(desk, "a.docx", whole.getvalue())
    fetched = await desk.client.get(answer.json()["translatedFileUrl"])

    [paragraph] = docx.Document(BytesIO(fetched.content)).paragraphs
    assert [(run.text, run.bold) for run in paragraph.runs] == [("ONE ", None), ("TWO", True)]


@pytest.mark.parametrize(
    "url",
    [
        "/download_file/nothing.txt",
        "/download_file/a.b.c.d",
        "/download_file/..%2F..%2Fjobs.sqlite3",
        "/download_file/%00",
    ],
)
async def test_nobody_guesses_the_name_of_a_file(desk: World, url: str) -> None:
    answer = await desk.client.get(url)

    assert answer.status_code == 404 and "error" in answer.json()


async def test_neither_key_nor_extension_may_differ(desk: World) -> None:
    url = (await send(desk, "a.txt", b"one")).json()["translatedFileUrl"]
    document, key, extension = url.rpartition("/")[2].split(".")

    for name in (f"{document}.{key}x.{extension}", f"{document}.{key}.exe", f"{document}.{key}"):
        assert (await desk.client.get(f"/download_file/{name}")).status_code == 404


def bomb() -> bytes:
    whole = BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(50 * 2**20))
    return whole.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "message"),
    [
        ("a.rtf", b"x", {}, 400, "file: is of no known format; there are: .txt, .html"),
        ("a.docm", b"x", {}, 400, "file: is of no known format"),
        ("a.docx", b"PK", {}, 400, NO_ARCHIVE + "docx"),
        ("a.docx", bomb(), {}, 413, "file: unpacks to more than 200 times"),
        ("a.txt", b"a " * 600_000, {}, 413, "body: is too large"),
        ("a.txt", b"ab " * 400, {}, 413, "file: has more than 1000 characters"),
        ("a.txt", b"", {}, 400, "file: has no text to translate"),
        ("a.txt", b"a", {"target": "de"}, 400, "target: not a target language"),
        ("a.txt", b"a", {"source": "xx"}, 400, "source: no such source language"),
        ("a.txt", b"a", {"model": "none"}, 404, "model: no such model"),
        ("a.txt", b"a", {"formality": "x"}, 400, "formality: is not supported here"),
        ("../../a.xlsx", b"a", {}, 400, NO_ARCHIVE + "xlsx"),
    ],
)
async def test_what_is_refused(
    desk: World,
    name: str,
    data: bytes,
    fields: dict[str, str],
    status: int,
    message: str,
) -> None:
    answer = await send(desk, name, data, **fields)

    assert (answer.status_code, [*answer.json()]) == (status, ["error", "field", "reason"])
    assert answer.json()["error"].startswith(message)
    assert desk.services.documents.files.num_bytes() == 0
    assert (await send(desk, "a.txt", b"after")).status_code == 200


async def test_bodies_without_a_file(desk: World) -> None:
    as_json = await desk.client.post("/translate_file", json=EN_FR)
    as_form = await desk.client.post("/translate_file", data=EN_FR)
    without = await desk.client.post("/translate_file", files={"a": (None, "b")}, data=EN_FR)
    as_text = await desk.client.post("/translate_file", files={"file": (None, "b")}, data=EN_FR)
    headers = {"content-type": "multipart/form-data"}
    broken = await desk.client.post("/translate_file", content=b"a", headers=headers)

    for answer in (as_json, as_form, without, as_text, broken):
        assert (answer.status_code, [*answer.json()]) == (400, ["error", "field", "reason"])


async def test_who_goes_away_leaves_no_work(desk: World) -> None:
    desk.translator_engine.gate = asyncio.Event()
    waiting = asyncio.create_task(send(desk, "a.txt", b"one"))
    async with asyncio.timeout(10):
        while not desk.translator_engine.requests:
            await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    assert desk.services.documents.files.num_bytes() == 0


async def test_documents_come_after_other_requests(desk: World) -> None:
    await send(desk, "a.txt", b"one")
    await desk.client.post("/translate", json={"q": "two", **EN_FR})

    of_document, of_text = desk.translator_engine.requests
    assert of_document.priority > of_text.priority


async def test_worse_translations_are_marked(desk: World) -> None:
    answer = await send(desk, "a.po", b'msgid "a dog"\nmsgstr ""\n', quality_threshold="0.1")
    assert b"fuzzy" not in (await desk.client.get(answer.json()["translatedFileUrl"])).content
