"""Takes files and batches in, tells how far each is, and gives results out.

Both lie on disk, so that a server that is killed goes on with them, and so do its other replicas.
Each belongs to the key that made it; others do not learn that it is there.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from serving.batches import tables
from serving.batches.files import FileFolder
from serving.batches.tables import BatchRecord, FileRecord, State
from serving.batches.worker import Run, Worker
from serving.errors import NoSuchObject, RequestError, StorageError, TooLarge
from serving.storage import DatabaseThread

logger = logging.getLogger(__name__)

MAX_ALL_MIB = 4_096
WINDOW = "24h"
INPUT_PURPOSE = "batch"
_KEPT_SECONDS = 30 * 86_400
_WINDOW_SECONDS = 86_400
_SWEEPS_EVERY_SECONDS = 600.0


class Batches:
    """Holds all files and batches of a server; every replica has one of these.

    owner: the name of the key that is shown; empty where the server asks for none.
    """

    def __init__(self, state_dir: Path, run: Run) -> None:
        self._database = DatabaseThread(state_dir, "batches", tables.SCHEMA)
        self._folder = FileFolder(state_dir / "files")
        self._worker = Worker(self._database, self._folder, run)

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Work on batches, and remove what has expired, as long as the block runs."""
        try:
            await self._sweep()
        except (StorageError, sqlite3.DatabaseError) as error:  # who has no batches needs none
            logger.warning("no batches are worked on: %s", error)
            yield
            return
        tasks = [asyncio.create_task(each) for each in (self._worker.run(), self._sweep_often())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, owner: str, name: str, file: BinaryIO) -> FileRecord:
        """Keep a file. Raises TooLarge and StorageError."""
        if await self._database.run(tables.num_bytes) > MAX_ALL_MIB * 2**20:
            raise TooLarge("file", name, "has no room: delete files, or wait until some expire")
        file_id = _new_id("file-")
        size = await asyncio.to_thread(self._folder.take, file_id, file)
        now = int(time.time())
        record = FileRecord(file_id, owner, INPUT_PURPOSE, name, size, now, now + _KEPT_SECONDS)
        await self._database.run(tables.add_file, record)
        return record

    async def file(self, owner: str, file_id: str, field: str = "file_id") -> FileRecord:
        """Return what is known of a file. Raises NoSuchObject."""
        record = None
        if file_id.isascii():  # as ours are; a database cannot be asked for half a surrogate pair
            record = await self._database.run(tables.file, file_id, owner, time.time())
        if record is None:
            raise NoSuchObject(field, file_id)
        return record

    async def files(self, owner: str) -> list[FileRecord]:
        return await self._database.run(tables.files, owner, time.time())

    async def content(self, owner: str, file_id: str) -> Path:
        return self._folder.path((await self.file(owner, file_id)).id)

    async def delete(self, owner: str, file_id: str) -> None:
        """Forget a file. Raises NoSuchObject, and RequestError for what a batch still reads."""
        record = await self.file(owner, file_id)
        batches = await self.batches(owner)
        if any(each.state in tables.OPEN and each.input_file == file_id for each in batches):
            raise RequestError("file_id", file_id, "a batch reads it; cancel that first")
        await self._database.run(tables.remove_files, [record.id])
        await asyncio.to_thread(self._folder.remove, record.id)

    async def create(
        self, owner: str, endpoint: str, input_file: str, metadata: dict[str, str]
    ) -> BatchRecord:
        """Begin a batch. Raises NoSuchObject."""
        record = await self.file(owner, input_file, "input_file_id")
        if record.purpose != INPUT_PURPOSE:
            message = f'its purpose must be "{INPUT_PURPOSE}"'
            raise RequestError("input_file_id", input_file, message)
        now = int(time.time())
        batch = BatchRecord(
            _new_id("batch_"),
            owner,
            State.VALIDATING,
            endpoint,
            input_file,
            WINDOW,
            now,
            now + _WINDOW_SECONDS,
            metadata,
        )
        await self._database.run(tables.add_batch, batch)
        self._worker.wake()
        return batch

    async def batch(self, owner: str, batch_id: str) -> BatchRecord:
        """Tell how far a batch is. Raises NoSuchObject."""
        found = await self._database.run(tables.batch, batch_id, owner)
        if found is None:
            raise NoSuchObject("batch_id", batch_id)
        return found

    async def batches(self, owner: str) -> list[BatchRecord]:
        return await self._database.run(tables.batches, owner)

    async def cancel(self, owner: str, batch_id: str) -> BatchRecord:
        """Have a batch end with what is done. Raises NoSuchObject, and RequestError of one that has
        ended by itself.
        """
        found = await self._database.run(tables.cancel, batch_id, owner, time.time())
        if found is None:
            raise NoSuchObject("batch_id", batch_id)
        if found.state not in (State.CANCELLING, State.CANCELLED):
            raise RequestError("batch_id", batch_id, f"cannot be cancelled: it is {found.state}")
        self._worker.wake()
        return found

    async def _sweep_often(self) -> None:
        while True:
            await asyncio.sleep(_SWEEPS_EVERY_SECONDS)
            with suppress(StorageError, sqlite3.DatabaseError):
                await self._sweep()

    async def _sweep(self) -> None:
        now = time.time()
        expired = await self._database.run(tables.file_ids, now)
        await self._database.run(tables.remove_files, expired)
        await self._database.run(tables.remove_batches, now - _KEPT_SECONDS)
        known = await self._database.run(tables.file_ids)
        for file_id in expired:
            await asyncio.to_thread(self._folder.remove, file_id)
        await asyncio.to_thread(self._folder.remove_abandoned, known)


def _new_id(prefix: str) -> str:
    """Make an id that sorts after earlier ones: lists are in order, also of one second."""
    return f"{prefix}{time.time_ns():016x}{token_hex(4)}"
