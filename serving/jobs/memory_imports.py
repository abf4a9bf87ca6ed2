"""Fill translation memories from TMX files. An import that was interrupted begins again."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, ClassVar

from serving.errors import AttendantError, RequestError, StorageError
from serving.jobs import table
from serving.jobs.queue import JobQueue, Lease
from serving.jobs.table import JobState, QueuedJob
from serving.server_config import DocumentLimits
from serving.storage.files import enter_in_thread, run_in_thread
from serving.translation_memory.store import (
    TranslationMemories,
    TranslationMemory,
    split_into_batches,
)
from serving.translation_memory.tmx import TmxFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MemoryImportData:
    """What is asked of an import, and how it ended.

    num_bytes: of the file. num_skipped: units that have no source or no target, or are there
    already. error: why it failed.
    """

    KIND: ClassVar[str] = "memory_import"

    num_bytes: int
    num_skipped: int = 0
    error: str = ""


MemoryImport = QueuedJob[MemoryImportData]


class MemoryImports:
    """The imports of a server; also the queue's handler of such jobs. A job has the id of the
    import that made its memory.
    """

    data = MemoryImportData
    num_at_once = 1

    def __init__(
        self, queue: JobQueue, memories: TranslationMemories, limits: DocumentLimits
    ) -> None:
        self.files = queue.state.files("memory-imports")
        self._queue, self._memories, self._limits = queue, memories, limits

    async def receive(self, memory: TranslationMemory, chunks: AsyncIterator[bytes]) -> None:
        """Store a TMX file and queue its import. Raises RequestError if there is one already."""
        identity = memory.import_job
        if await self.find(identity) is not None:
            raise RequestError("file", memory.name, "was received already")
        num_bytes = await self._store_chunks(identity, chunks)
        now = await self._queue.time()
        kept_until = now + self._limits.hours * 3600
        await self._queue.add(
            QueuedJob(identity, memory.owner, MemoryImportData(num_bytes), now, kept_until)
        )

    async def find(self, identity: str) -> MemoryImport | None:
        """Return the job of an import; None if its file has not come, or it was forgotten."""
        return await self._queue.database.run(table.find, MemoryImportData, identity)

    async def run(self, job: MemoryImport, lease: Lease) -> None:
        """Fill a memory, or store why it cannot be filled and delete it."""
        try:
            num_skipped = 0

            async def work() -> None:
                nonlocal num_skipped
                num_skipped = await self._import(job.id)

            await lease.hold(work())
        except StorageError:
            raise
        except AttendantError as error:
            # The job first: begun again after a kill, it would miss the memory.
            if await self._end(job, lease, JobState.FAILED, error=str(error)):
                await self._memories.discard_import(job.id)
        else:
            await self._end(job, lease, JobState.COMPLETED, num_skipped=num_skipped)

    async def _end(self, job: MemoryImport, lease: Lease, state: JobState, **changes: Any) -> bool:
        """Store how a job ended; return False if another worker has it now."""
        is_stored = await lease.enter(job, state, **changes) is not None
        if is_stored:
            await run_in_thread(self.files.remove, job.id)
        return is_stored

    async def _import(self, identity: str) -> int:
        """Read the file of an import into its memory; return how many units were skipped."""
        await self._memories.begin_import(identity)
        name = (await self._memories.get_by_import(None, identity)).name
        async with enter_in_thread(self.files.reading(identity)) as path:
            file = TmxFile(path, name)
            batches = split_into_batches(file.units())
            num_read = num_known = 0
            while batch := await asyncio.to_thread(next, batches, None):
                num_read += len(batch)
                num_known += await self._memories.add_units(identity, batch)
        if not num_read or file.source_language is None:
            raise RequestError("file", name, "has no translation units with source and target")
        await self._memories.complete_import(identity, file.source_language)
        return file.num_skipped + num_known

    async def _store_chunks(self, identity: str, chunks: AsyncIterator[bytes]) -> int:
        """Write a file as it comes, and return its size."""
        num_bytes = 0
        async with enter_in_thread(self.files.writing(identity)) as path:
            with path.open("wb") as file:
                async for chunk in chunks:
                    num_bytes += len(chunk)
                    await asyncio.to_thread(file.write, chunk)
        return num_bytes
