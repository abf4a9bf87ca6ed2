"""Takes documents in, tells how far each is, and gives results out: what protocols ask of it.

Documents and what is translated of them lie on disk, so that a server that is killed goes on with
them, and so do its other replicas.
"""

import asyncio
import hmac
import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from secrets import token_hex, token_urlsafe
from typing import BinaryIO

from serving.access.key_file import hash_of
from serving.documents import tables
from serving.documents.folder import Folder
from serving.documents.formats.registry import extension_of, read_document
from serving.documents.tables import Record, State, Wanted
from serving.documents.translating import job_of
from serving.documents.worker import Worker
from serving.errors import (
    DocumentNotFound,
    DocumentNotReady,
    DocumentsFull,
    EngineError,
    RequestError,
    StorageError,
    TooLarge,
)
from serving.pipelines.catalog import Catalog
from serving.server_config import DocumentLimits
from serving.storage import DatabaseThread

logger = logging.getLogger(__name__)

_LOOKS_EVERY_SECONDS = 0.2
_SWEEPS_EVERY_SECONDS = 60.0
_TAG = re.compile("<[^>]*>")


@dataclass(frozen=True, slots=True)
class Handle:
    """Names a document to who sent it. key: only they know it."""

    id: str
    key: str


class Draft:
    """Holds a document that was taken in and is not queued yet.

    texts: of its fragments, without their codes.
    """

    def __init__(self, document: str, name: str, texts: Sequence[str]) -> None:
        self.id, self.name, self.texts = document, name, texts
        self.is_queued = False

    @property
    def num_characters(self) -> int:
        return sum(map(len, self.texts))


class Documents:
    """Holds all documents of a server; every replica has one of these."""

    def __init__(self, state_dir: Path, catalog: Catalog, limits: DocumentLimits) -> None:
        self._database = DatabaseThread(state_dir, "documents", tables.SCHEMA)
        self._folder = Folder(state_dir / "documents")
        self._catalog, self._limits = catalog, limits
        self._worker = Worker(self._database, self._folder, catalog)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Translate documents, and remove those that have expired, as long as the block runs."""
        try:
            await self._sweep()
        except StorageError as error:  # a server without documents has no need of it
            logger.warning("no documents are translated: %s", error)
            yield
            return
        tasks = [asyncio.create_task(each) for each in (self._worker.run(), self._sweep_often())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def received(
        self, file: BinaryIO, name: str, language: str | None = None
    ) -> AsyncIterator[Draft]:
        """Take a file in; what is not queued by the end of the block is thrown away.

        language: of its text, if it is known.
        Raises RequestError for a file that is no document, TooLarge, and DocumentsFull.
        """
        extension_of(name)
        document = token_hex(16)
        draft = Draft(document, name, ())
        try:
            texts = await asyncio.to_thread(self._take, document, name, file, language)
            yield (draft := Draft(document, name, texts))
        finally:
            if not draft.is_queued:
                await asyncio.to_thread(self._folder.remove, document)

    async def queue(self, draft: Draft, wanted: Wanted) -> Handle:
        """Have a document translated. Raises RequestError where no model can."""
        await job_of(self._catalog, wanted)
        handle = Handle(draft.id, token_urlsafe(32))
        now = time.time()
        record = Record(
            id=draft.id,
            key_hash=hash_of(handle.key),
            wanted=wanted,
            num_characters=draft.num_characters,
            num_fragments=len(draft.texts),
            num_done=0,
            state=State.QUEUED,
            error="",
            created_at=now,
            expires_at=now + self._limits.hours * 3600,
            begun_at=0.0,
            begun_with=0,
        )
        draft.is_queued = True
        await self._database.run(tables.add, record)
        self._worker.wake()
        return handle

    async def record(self, handle: Handle, owner: str | None) -> Record:
        """Tell how far a document is. Raises DocumentNotFound, also for a wrong key.

        owner: as it was `Wanted`; None is whoever has the handle.
        """
        record = await self._database.run(tables.found, handle.id)
        if record is None or record.expires_at < time.time():
            raise DocumentNotFound(handle.id)
        if owner not in (None, record.wanted.owner):
            raise DocumentNotFound(handle.id)
        if not hmac.compare_digest(record.key_hash, hash_of(handle.key)):
            raise DocumentNotFound(handle.id)
        return record

    async def result(self, handle: Handle, owner: str | None) -> tuple[Record, Path]:
        """Return where the translated document is. Raises DocumentNotReady, EngineError."""
        record = await self.record(handle, owner)
        if record.state is State.ERROR:
            raise EngineError(f"the document was not translated: {record.error}")
        if record.state is not State.DONE:
            raise DocumentNotReady(record.seconds_remaining(time.time()))
        return record, self._folder.result(record.id, record.wanted.name)

    async def finished(self, handle: Handle, owner: str) -> Record:
        """Wait until a document is translated, by whichever replica. Raises EngineError."""
        while True:
            with suppress(DocumentNotReady):
                record, _ = await self.result(handle, owner)
                return record
            await asyncio.sleep(_LOOKS_EVERY_SECONDS)

    async def remove(self, handle: Handle, owner: str) -> None:
        """Forget a document; whoever works on it stops soon. Raises DocumentNotFound."""
        await self.forget((await self.record(handle, owner)).id)

    async def forget(self, document: str) -> None:
        await self._database.run(tables.remove, document)
        await asyncio.to_thread(self._folder.remove, document)

    def _take(
        self, document: str, name: str, file: BinaryIO, language: str | None
    ) -> Sequence[str]:
        if self._folder.num_bytes() > self._limits.disk_mib * 2**20:
            raise DocumentsFull
        path = self._folder.take(document, name, file)
        fragments = read_document(path, name, language).fragments
        texts = [unescape(_TAG.sub("", fragment)) for fragment in fragments]
        if sum(map(len, texts)) > self._limits.max_characters:
            message = f"has more than {self._limits.max_characters} characters"
            raise TooLarge("file", name, message)
        if not texts:
            raise RequestError("file", name, "has no text to translate")
        return texts

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(_SWEEPS_EVERY_SECONDS)
            with suppress(StorageError):
                await self._sweep()

    async def _sweep(self) -> None:
        """Forget what has expired, and what replicas left that were killed as it came."""
        for document in await self._database.run(tables.ids, time.time()):
            await self.forget(document)
        known = await self._database.run(tables.ids)
        await asyncio.to_thread(self._folder.remove_abandoned, known)
