"""Document jobs: queued, translated, given out, cancelled, expired, and continued after a kill."""

import asyncio
import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from serving.access.key_file import hash_key
from serving.documents.spans import PlainDocument
from serving.errors import (
    DocumentNotFound,
    DocumentNotReady,
    DocumentsFull,
    EngineError,
    Overloaded,
    RequestError,
    TooLarge,
)
from serving.jobs import queue, table
from serving.jobs.documents import DocumentJob, Documents, Handle
from serving.jobs.queue import JobQueue
from serving.jobs.table import JobState
from serving.pipelines.routing import DocumentSources
from serving.server_config import DocumentLimits
from serving.storage.database import Connection
from serving.storage.opening import open_state
from serving.storage.state import State
from tests.serving.documents import shouting
from tests.serving.documents.shouting import ShoutingTranslator

LINES = [f"line number {number} of many" for number in range(200)]
TEXT = "\n".join(LINES).encode()


@asynccontextmanager
async def working(documents: Documents) -> AsyncIterator[None]:
    async with documents._queue.run_workers(documents):
        yield


def documents_of(state: State, translator: ShoutingTranslator, **limits: Any) -> Documents:
    return Documents(JobQueue(state), translator.catalog, DocumentLimits(**limits))


async def sent(documents: Documents, text: bytes = TEXT, name: str = "a.txt") -> Handle:
    async with documents.receive(io.BytesIO(text), name) as document:
        return await documents.queue(document, "ann", DocumentSources("en"), "fr")


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():
            await asyncio.sleep(0.01)


async def result(documents: Documents, handle: Handle) -> tuple[DocumentJob, bytes]:
    job, file = await documents.open_result(handle, "ann")
    with file:
        return job, file.read()


async def until_translated(documents: Documents, handle: Handle, num_fragments: int) -> None:
    async with asyncio.timeout(60):
        while (await documents.job(handle, "ann")).num_results < num_fragments:
            await asyncio.sleep(0.01)


async def let_leases_run_out(documents: Documents) -> None:
    await documents._database.run(
        lambda database: database.execute("UPDATE jobs SET leased_until = 0")
    )


async def test_a_document_is_translated_and_given_out(state: State) -> None:
    translator = ShoutingTranslator()
    documents = documents_of(state, translator)
    handle = await sent(documents)

    waiting = await documents.job(handle, "ann")
    with pytest.raises(DocumentNotReady):
        await documents.translated_job(handle, "ann")
    async with working(documents):
        await documents.wait_until_finished(handle, "ann")
    job, data = await result(documents, handle)

    assert (waiting.state, waiting.worker, waiting.num_results) == (JobState.QUEUED, None, 0)
    assert (job.state, job.num_results, job.data.num_fragments) == (JobState.COMPLETED, 200, 200)
    assert data == TEXT.upper()
    assert all(job.decoding.priority > 0 for job in translator.jobs)
    assert {job.decoding.share for job in translator.jobs} == {"ann"}


async def test_who_has_no_key_of_it_learns_nothing(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator())
    handle = await sent(documents)

    for other, owner in [(Handle(handle.id, "x"), "ann"), (Handle("x", "x"), "ann"), (handle, "b")]:
        with pytest.raises(DocumentNotFound):
            await documents.job(other, owner)


async def test_another_replica_goes_on_with_what_was_left(state: State) -> None:
    first, second = ShoutingTranslator(), ShoutingTranslator()
    first.gate, first.lets_pass = asyncio.Event(), 3
    dying, living = documents_of(state, first), documents_of(state, second)
    handle = await sent(dying)
    abandoned = asyncio.create_task(dying._queue._work(dying))
    await until_translated(dying, handle, 3 * 16)
    await let_leases_run_out(dying)

    async with working(living):
        await living.wait_until_finished(handle, "ann")
    _, data = await result(living, handle)

    assert data == TEXT.upper()
    assert set(second.texts) == set(LINES[3 * 16 :])
    abandoned.cancel()
    await asyncio.gather(abandoned, return_exceptions=True)
    assert (await living.job(handle, "ann")).state is JobState.COMPLETED


async def test_a_server_that_is_killed_goes_on_after_its_start(
    state: State, state_place: str
) -> None:
    source = f"""
import asyncio
from serving.storage.opening import open_state
from tests.serving.jobs import test_documents as t
async def main():
    translator = t.ShoutingTranslator()
    translator.gate, translator.lets_pass = asyncio.Event(), 5
    documents = t.documents_of(open_state({state_place!r}), translator)
    handle = await t.sent(documents)
    async with t.working(documents):
        await t.until_translated(documents, handle, 80)
        print(handle.id, handle.key, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    command = [sys.executable, "-c", source]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as killed:
        assert killed.stdout is not None
        handle = Handle(*killed.stdout.readline().split())
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    translator = ShoutingTranslator()
    documents = documents_of(state, translator)
    await let_leases_run_out(documents)

    async with working(documents):
        await documents.wait_until_finished(handle, "ann")
    _, data = await result(documents, handle)

    assert data == TEXT.upper()
    assert set(translator.texts) == set(LINES[80:])


async def test_a_worker_that_stops_gives_its_document_back(state: State) -> None:
    translator = ShoutingTranslator()
    translator.gate = asyncio.Event()
    documents = documents_of(state, translator)
    handle = await sent(documents)

    async with working(documents):
        await until(lambda: bool(translator.jobs))

    job = await documents.job(handle, "ann")
    assert (job.state, job.worker) == (JobState.QUEUED, None)


async def test_a_cancelled_document_is_worked_on_no_more(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_RENEWAL_SECONDS", 0.05)
    translator = ShoutingTranslator()
    translator.gate = asyncio.Event()
    documents = documents_of(state, translator)
    handle = await sent(documents)

    async with working(documents):
        await until(lambda: bool(translator.jobs))
        await documents.remove(handle.id)
        with pytest.raises(DocumentNotFound):
            await documents.job(handle, "ann")
        translator.gate = None
        after = await sent(documents, b"after")
        await documents.wait_until_finished(after, "ann")

    assert not documents.files.exists(handle.id)


async def test_what_is_cancelled_while_it_is_written_is_no_failure(
    state: State, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    documents = documents_of(state, ShoutingTranslator())
    handle = await sent(documents)
    begun, goes_on = threading.Event(), threading.Event()

    def write(self: PlainDocument, *arguments: Any) -> None:
        begun.set()
        assert goes_on.wait(10)
        written(self, *arguments)

    written = PlainDocument.write
    monkeypatch.setattr(PlainDocument, "write", write)
    async with working(documents):
        await until(begun.is_set)
        await documents.remove(handle.id)
        goes_on.set()
        await asyncio.sleep(0.2)
    assert caplog.records == []
    assert not documents.files.exists(handle.id)


async def test_a_full_engine_is_waited_for(state: State) -> None:
    translator = ShoutingTranslator()
    translator.errors = [Overloaded(1, 0.01) for _ in range(5)]
    documents = documents_of(state, translator)
    handle = await sent(documents)

    async with working(documents):
        await documents.wait_until_finished(handle, "ann")


async def test_a_failure_is_told(state: State) -> None:
    translator = ShoutingTranslator()
    translator.errors = [EngineError("scripted")] * 100
    documents = documents_of(state, translator)
    handle = await sent(documents)

    async with working(documents):
        with pytest.raises(EngineError, match="not translated: scripted"):
            await documents.wait_until_finished(handle, "ann")
    assert (await documents.job(handle, "ann")).data.error == "scripted"


async def test_what_has_expired_is_gone(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator(), hours=1e-9)
    handle = await sent(documents)

    with pytest.raises(DocumentNotFound):
        await documents.job(handle, "ann")
    async with working(documents):
        assert not documents.files.exists(handle.id)


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("a.txt", b"many words", TooLarge, "more than 5 characters"),
        ("a.txt", b" \n12\n", RequestError, "has no text to translate"),
        ("a.rtf", b"words", RequestError, r"no known format; there are: \.txt, .*\.docx"),
        ("a", b"words", RequestError, "no known format"),
        ("a.docm", b"words", RequestError, "no known format"),
    ],
)
async def test_what_is_refused_leaves_nothing(
    state: State, name: str, text: bytes, error: type[Exception], message: str
) -> None:
    documents = documents_of(state, ShoutingTranslator(), max_characters=5)

    with pytest.raises(error, match=message):
        await sent(documents, text, name)

    assert documents.files.num_bytes() == 0


async def test_no_model_for_the_languages(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator())

    with pytest.raises(RequestError, match="no such source language"):
        async with documents.receive(io.BytesIO(TEXT), "a.txt") as document:
            await documents.queue(document, "", DocumentSources("de"), "fr")

    assert documents.files.num_bytes() == 0


async def marked(documents: Documents, name: str) -> Handle:
    text = b'msgid ""\nmsgstr ""\n\nmsgid "a dog"\nmsgstr ""\n\nmsgid "a cat"\nmsgstr ""\n'
    async with documents.receive(io.BytesIO(text), name) as document:
        return await documents.queue(
            document, "ann", DocumentSources("en"), "fr", quality_threshold=0.5
        )


async def test_worse_translations_are_marked_also_by_another_replica(state: State) -> None:
    translator = ShoutingTranslator()
    documents = documents_of(state, translator)
    handle = await marked(documents, "a.po")
    query = "INSERT INTO results VALUES (?, 0, 0, ?)"
    stored = (handle.id, json.dumps(["UN CHIEN", 0.4]))  # by a replica that is gone
    await documents._database.run(lambda database: database.execute(query, stored))

    async with working(documents):
        await documents.wait_until_finished(handle, "ann")
    _, data = await result(documents, handle)

    assert '#, fuzzy\nmsgid "a dog"\nmsgstr "UN CHIEN"' in data.decode()
    assert '#, fuzzy\nmsgid "a cat"\nmsgstr "A CAT"' in data.decode()
    assert translator.texts == ["a cat"]


async def test_an_older_version_can_read_what_does_not_ask_for_quality(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator())
    for handle in (await sent(documents), await marked(documents, "a.po")):
        asked = (await documents.job(handle, "ann")).data.quality_threshold
        stored = await documents._database.run(stored_data, handle.id)
        assert stored.get("quality_threshold", "nothing") == (asked or "nothing")


def stored_data(connection: Connection, job_id: str) -> dict[str, Any]:
    [row] = connection.rows("SELECT data FROM jobs WHERE id = ?", (job_id,))
    data: dict[str, Any] = json.loads(row["data"])
    return data


async def test_a_format_without_a_place_for_quality(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator())
    with pytest.raises(RequestError, match=r"quality_threshold: a.txt cannot.*\.po, \.pot, "):
        await marked(documents, "a.txt")


async def test_there_is_room_for_so_much_and_no_more(state: State) -> None:
    documents = documents_of(state, ShoutingTranslator(), disk_mib=1)
    await sent(documents, b"word " * 300_000)

    with pytest.raises(DocumentsFull):
        await sent(documents)


async def test_characters_that_no_document_can_have_are_left_out_of_translations(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shouting, "shout_fragment", lambda text: f"\0\x1f\ud800{text}\U0001f600")
    documents = documents_of(state, ShoutingTranslator())
    handle = await sent(documents, b"one")

    async with working(documents):
        await documents.wait_until_finished(handle, "ann")

    assert (await result(documents, handle))[1].decode() == "one\U0001f600"


OLD_SCHEMA = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
    data TEXT NOT NULL, times TEXT NOT NULL, created_at REAL NOT NULL, kept_until REAL NOT NULL,
    worker TEXT, leased_until REAL NOT NULL DEFAULT 0,
    claimed_at REAL NOT NULL DEFAULT 0, num_results_at_claim INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE results (
    job TEXT NOT NULL, number INTEGER NOT NULL, is_error INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL,
    num_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, kept_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""


async def test_the_state_folder_of_the_version_before_is_read(tmp_path: Path) -> None:
    folder, handle = tmp_path / "state", Handle("a1", "secret")
    source = folder / "documents" / "a1" / "source.txt"
    source.parent.mkdir(parents=True)
    source.write_bytes(b"one\ntwo\nthree")
    data = {
        "name": "a.txt",
        "source": "en",
        "target": "fr",
        "key_hash": hash_key(handle.key),
        "num_fragments": 3,
    }
    with closing(sqlite3.connect(folder / "jobs.sqlite3")) as database:
        database.executescript(OLD_SCHEMA)
        database.execute(
            "INSERT INTO jobs (id, kind, owner, state, data, times, created_at, kept_until, worker)"
            " VALUES ('a1', 'document', 'ann', 'queued', ?, '{}', 1.0, 1e12, 'gone')",
            (json.dumps(data),),
        )
        database.execute("INSERT INTO results VALUES ('a1', 0, 0, 'UN')")
        database.execute("INSERT INTO files VALUES ('f1', 'ann', 'batch', 'b', 1, 1, 9999999999)")
        database.commit()

    translator = ShoutingTranslator()
    documents = documents_of(open_state(folder), translator)
    async with working(documents):
        await documents.wait_until_finished(handle, "ann")

    assert (await result(documents, handle))[1] == b"UN\nTWO\nTHREE"
    assert translator.texts == ["two", "three"]
    [file] = await documents._database.run(table.files_of, "ann")
    assert (file.id, file.num_bytes) == ("f1", 1)
