"""Works on documents that wait, a few at a time, as long as a replica lives."""

import asyncio
import logging
import sqlite3
import time
from contextlib import aclosing, suppress
from secrets import token_hex

from serving.documents import tables
from serving.documents.folder import Folder
from serving.documents.formats.registry import read_document
from serving.documents.tables import Record, State
from serving.documents.translating import batches, job_of, translated
from serving.errors import AttendantError, EngineStopped, StorageError
from serving.pipelines.catalog import Catalog
from serving.storage import DatabaseThread

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
_RENEWS_EVERY_SECONDS = 5.0
_LOOKS_EVERY_SECONDS = 5.0
_DOCUMENTS_AT_ONCE = 2


class Worker:
    """Translates documents of the database, its own replica's and those that others left."""

    def __init__(self, database: DatabaseThread, folder: Folder, catalog: Catalog) -> None:
        self._database, self._folder, self._catalog = database, folder, catalog
        self._name = token_hex(8)
        self._has_news = asyncio.Event()

    def wake(self) -> None:
        """Say that there is a new document."""
        self._has_news.set()

    async def run(self) -> None:
        """Work until this is cancelled; then give back what is not done."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_DOCUMENTS_AT_ONCE):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            self._has_news.clear()
            if (record := await self._claimed()) is not None:
                await self._translate(record)
                continue
            # What other replicas leave tells nobody.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), _LOOKS_EVERY_SECONDS)

    async def _claimed(self) -> Record | None:
        """Take a document; none while the database cannot be used."""
        try:
            return await self._database.run(tables.claim, self._name, time.time(), LEASE_SECONDS)
        except (StorageError, sqlite3.DatabaseError) as error:
            logger.error("documents wait: %s", error)
            return None

    async def _translate(self, record: Record) -> None:
        """Translate a document, and say how that ended."""
        state, error = State.QUEUED, ""
        try:
            await self._held(record)
            state = State.DONE
        except (EngineStopped, StorageError) as failure:
            logger.warning("document %s waits: %s", record.id, failure)
            await asyncio.sleep(_LOOKS_EVERY_SECONDS)
        except AttendantError as failure:
            state, error = State.ERROR, str(failure)
        except Exception as failure:
            state, error = State.ERROR, "internal error"
            if self._folder.holds(record.id):  # else it was cancelled while it was read or written
                logger.error("document %s failed: %r", record.id, failure, exc_info=failure)
        finally:
            # Nothing comes of it if the document was cancelled, or is another worker's by now.
            self._database.start(tables.end, record.id, self._name, state, error)

    async def _held(self, record: Record) -> None:
        """Keep the lease of a document while it is translated, and stop once it is lost."""
        work = asyncio.create_task(self._write(record))
        is_own = True
        try:
            while is_own and not (await asyncio.wait([work], timeout=_RENEWS_EVERY_SECONDS))[0]:
                until = time.time() + LEASE_SECONDS
                is_own = await self._database.run(tables.renew, record.id, self._name, until)
            if is_own:
                await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _write(self, record: Record) -> None:
        """Translate what is not translated yet, and write the document with all of it."""
        translator, job = await job_of(self._catalog, record.wanted)
        source = self._folder.source(record.id, record.wanted.name)
        wanted = record.wanted
        document = await asyncio.to_thread(read_document, source, wanted.name, wanted.source)
        done = await self._database.run(tables.translations, record.id)
        left = {n: text for n, text in enumerate(document.fragments) if n not in done}
        name = f"document-{record.id}"
        async with aclosing(translated(translator, job, batches(left), name)) as results:
            async for texts in results:
                await self._database.run(tables.save, record.id, self._name, texts)
                done.update(texts)
        ordered = [done[number] for number in range(len(done))]
        with self._folder.new_result(record.id, record.wanted.name) as target:
            await asyncio.to_thread(document.write, ordered, target, record.wanted.target)
