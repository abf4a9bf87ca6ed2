"""A process that works on documents, a batch and the import of a translation memory, and bills
characters, and is killed at one of its writes; and one that goes on.
"""

import asyncio
import io
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.access.quota import Quota
from serving.glossaries.entries import GlossaryPair
from serving.glossaries.store import GlossaryStore
from serving.jobs.batches import Batches, BatchRequest
from serving.jobs.documents import Documents, Handle
from serving.jobs.memory_imports import MemoryImports
from serving.jobs.queue import JobQueue
from serving.jobs.table import OPEN, JobState
from serving.pipelines.routing import DocumentSources
from serving.server_config import DocumentLimits
from serving.storage.opening import open_state
from serving.storage.postgresql import PostgresqlConnection
from serving.storage.state import State
from serving.translation_memory.store import TranslationMemories
from serving.translation_memory.tmx import MemorySegment, TranslationUnit, write_tmx
from tests.serving.documents.shouting import ShoutingTranslator

NUM_LINES = 40
NUM_REQUESTS = 20
NUM_BILLED = 4
NUM_UNITS = 5
URL = "/v1/completions"
_READS = ("SELECT", "PRAGMA", "BEGIN", "WITH")


def text_of(number: int) -> bytes:
    return "\n".join(f"document {number} line {line}" for line in range(NUM_LINES)).encode()


class Journal:
    """What clients were told, as lines of JSON: it outlives the process."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "journal"

    def write(self, event: str, **facts: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps({"event": event, **facts}) + "\n")

    def read(self, event: str) -> list[dict[str, Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [each for each in map(json.loads, lines) if each["event"] == event]


def work(folder: Path, place: str, kill_at: int, num_documents: int) -> None:
    """Send documents, translate and fetch them. The process is killed before its write of this
    number, counted from 1; it ends well if it has fewer.

    folder: of the journal. place: of the state.
    """
    _kill_at_write(kill_at)
    state = open_state(place)
    asyncio.run(_work(folder, state, num_documents))
    state.close()


def go_on(folder: Path, place: str) -> None:
    """Finish what a killed process has left, and fetch what was not fetched."""
    state = open_state(place)
    asyncio.run(_go_on(folder, state))
    state.close()


def _kill_at_write(number: int) -> None:
    num_writes = 0

    def count(*_: Any) -> None:
        nonlocal num_writes
        num_writes += 1
        if num_writes == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            count()
            return function(*arguments, **options)

        return wrapper

    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        database = connect(*arguments, **options)
        database.set_trace_callback(lambda sql: None if sql.startswith(_READS) else count())
        return database

    sqlite3.connect = traced  # type: ignore[assignment]
    for name in ("rows", "execute", "execute_many"):
        _count_writes(name, count)
    transaction = PostgresqlConnection.transaction

    @contextmanager
    def counted_transaction(connection: PostgresqlConnection, lock: str = "") -> Iterator[None]:
        with transaction(connection, lock):
            yield
            count()

    PostgresqlConnection.transaction = counted_transaction  # type: ignore[method-assign,assignment]
    os.replace = counted(os.replace)
    os.unlink = counted(os.unlink)
    shutil.rmtree = counted(shutil.rmtree)  # type: ignore[assignment]


def _count_writes(name: str, count: Callable[[], None]) -> None:
    """Count the calls of a method of connections that write."""
    function = getattr(PostgresqlConnection, name)

    def counted(connection: PostgresqlConnection, statement: str, *values: Any) -> Any:
        if not statement.startswith(_READS):
            count()
        return function(connection, statement, *values)

    setattr(PostgresqlConnection, name, counted)


def _handlers(state: State, translator: ShoutingTranslator) -> tuple[Documents, Batches]:
    queue = JobQueue(state)
    return Documents(queue, translator.catalog, DocumentLimits()), Batches(queue, answer)


def _imports(state: State, documents: Documents) -> tuple[TranslationMemories, MemoryImports]:
    memories = TranslationMemories(state)
    return memories, MemoryImports(documents._queue, memories, DocumentLimits())


async def tmx() -> AsyncIterator[bytes]:
    units = (
        TranslationUnit(MemorySegment(f"unit {number}"), {"fr": MemorySegment(f"UNIT {number}")})
        for number in range(NUM_UNITS)
    )
    yield "".join(write_tmx("en", units)).encode()


def _quota(folder: Path, state: State) -> Quota:
    ann = KeyEntry(name="ann", sha256=hash_key("a"), characters_per_month=1_000)
    write_keys(folder / "keys.json", (ann,))
    return Quota(state, KeyRing(folder / "keys.json", {}))


async def answer(asked: BatchRequest) -> tuple[int, Any]:
    await asyncio.sleep(0)
    return 200, {"said": asked.body["prompt"]}


def requests() -> io.BytesIO:
    lines = [
        {"custom_id": name, "method": "POST", "url": URL, "body": {"model": "m", "prompt": name}}
        for name in map(str, range(NUM_REQUESTS))
    ]
    return io.BytesIO("\n".join(map(json.dumps, lines)).encode())


async def _work(folder: Path, state: State, num_documents: int) -> None:
    journal = Journal(folder)
    documents, batches = _handlers(state, ShoutingTranslator())
    glossary = await GlossaryStore(state).create(
        "ann", "terms", {GlossaryPair("en", "fr"): {"dog": "chien"}}
    )
    journal.write("glossary", id=glossary.id)
    for _ in range(NUM_BILLED):
        async with _quota(folder, state).reserve("ann", 1):
            pass
        journal.write("billed")
    memories, imports = _imports(state, documents)
    memory = await memories.create("ann", "team")
    await imports.receive(memory, tmx())
    journal.write("imported", job=memory.import_job)
    handles = []
    for number in range(num_documents):
        async with documents.receive(io.BytesIO(text_of(number)), "a.txt") as document:
            handle = await documents.queue(document, "ann", DocumentSources("en"), "fr")
        journal.write("accepted", number=number, id=handle.id, key=handle.key)
        handles.append((number, handle))
    file = await batches.add_file("ann", "in.jsonl", requests())
    batch = await batches.create("ann", URL, file.id, {})
    journal.write("batch", id=batch.id)
    async with documents._queue.run_workers(documents, batches, imports):
        for number, handle in handles:
            await documents.wait_until_finished(handle, "ann")
            await _fetch(documents, journal, number, handle)
        await _end(batches, batch.id)
        await _units(memories, imports, memory.import_job)


async def _go_on(folder: Path, state: State) -> None:
    journal, translator = Journal(folder), ShoutingTranslator()
    documents, batches = _handlers(state, translator)
    for each in journal.read("glossary"):
        await GlossaryStore(state).get("ann", each["id"])
    journal.write("used", characters=(await _quota(folder, state).usage("ann")).characters)
    # Fifteen seconds later, or five minutes for one that was being sent.
    await documents._database.run(
        lambda database: database.execute("UPDATE jobs SET leased_until = 0")
    )
    sending = {each["number"] for each in journal.read("sending")}
    num_saved = 0
    open_ones = []
    for each in journal.read("accepted"):
        handle = Handle(each["id"], each["key"])
        if each["number"] not in sending:
            num_saved += (await documents.job(handle, "ann")).num_results
            open_ones.append((each["number"], handle))
    memories, imports = _imports(state, documents)
    async with documents._queue.run_workers(documents, batches, imports):
        for each in journal.read("imported"):
            units = await _units(memories, imports, each["job"])
            journal.write("memory filled", units=units)
        for number, handle in open_ones:
            await documents.wait_until_finished(handle, "ann")
            await _fetch(documents, journal, number, handle)
        for each in journal.read("batch"):
            output = await _end(batches, each["id"])
            journal.write("batch ended", said=[line["response"]["body"]["said"] for line in output])
    journal.write("went on", texts=translator.texts, saved=num_saved, num_open=len(open_ones))


async def _end(batches: Batches, identity: str) -> list[dict[str, Any]]:
    while (batch := await batches.batch("ann", identity)).state in OPEN:
        await asyncio.sleep(0.01)
    assert batch.data.output_file is not None
    with await batches.open_file("ann", batch.data.output_file) as file:
        return [json.loads(line) for line in file]


async def _units(memories: TranslationMemories, imports: MemoryImports, identity: str) -> list[str]:
    """Wait until a memory is filled, and return the sources of its units."""
    while (job := await imports.find(identity)) is None or job.state is not JobState.COMPLETED:
        await asyncio.sleep(0.01)
    [memory] = await memories.list_memories("ann")
    return [each.unit.source.text for each in await memories.list_units(memory.number)]


async def _fetch(documents: Documents, journal: Journal, number: int, handle: Handle) -> None:
    taken = await documents.take_result(handle, "ann")
    with taken.file:
        data = taken.file.read()
    journal.write("sending", number=number, is_right=data == text_of(number).upper())
    await taken.mark_sent()
