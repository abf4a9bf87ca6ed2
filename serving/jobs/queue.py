"""The job queue: jobs that outlive the server, and the work of this replica on them."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol, TypeVar

from serving.errors import AttendantError, StorageError
from serving.jobs import table
from serving.jobs.folder import JobFolder
from serving.jobs.table import Data, FileRecord, JobState, QueuedJob
from serving.storage.sqlite import DatabaseThread

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0  # until another replica goes on with the job of a killed one
_RENEWAL_SECONDS = 1.0  # far below the lease: a busy disk or processor must not lose the job
_POLL_SECONDS = 5.0  # jobs of this replica start at once; this finds those of other replicas
_SWEEP_SECONDS = 60.0


Result = TypeVar("Result")


class Lease:
    """The right of one worker to change a job, until it runs out."""

    def __init__(self, database: DatabaseThread, job: QueuedJob[Any], worker: str) -> None:
        self._database, self._job_id, self._worker = database, job.id, worker
        self._state: JobState | None = job.state

    async def hold(
        self, work: Coroutine[Any, Any, None], deadline: float = float("inf")
    ) -> JobState | None:
        """Run `work` and renew the lease meanwhile. Return the state of the job after that.

        The work is stopped once the state of the job changes, as by a cancellation, and at the
        deadline. The state is None if the job was removed or another worker has it.
        """
        task = asyncio.create_task(work)
        try:
            while not (await asyncio.wait([task], timeout=_RENEWAL_SECONDS))[0]:
                until = time.time() + LEASE_SECONDS
                renewal = (table.renew, self._job_id, self._worker, until)
                state: JobState | None = await self._database.run(*renewal)
                if state is not self._state or time.time() > deadline:
                    return state
            await task
            return self._state
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def update(self, job: QueuedJob[Any], files: Iterable[FileRecord] = ()) -> bool:
        """Store the job; see `table.update`."""
        is_stored = await self._database.run(table.update, job, self._worker, files)
        self._state = job.state if is_stored else self._state
        return is_stored

    async def save(self, texts: Mapping[int, str], is_error: bool = False) -> None:
        """Store results; see `table.save_results`."""
        arguments = (self._job_id, self._worker, texts, is_error)
        await self._database.run(table.save_results, *arguments)


class Handler(Protocol[Data]):
    """Runs the jobs of one kind.

    num_at_once: how many jobs of a replica run at the same time.
    folder: holds the files of the jobs.
    """

    data: type[Data]
    num_at_once: int
    folder: JobFolder

    async def run(self, job: QueuedJob[Data], lease: Lease) -> None:
        """Bring a job to its end, whatever its state. After an error it is tried again later."""


class JobQueue:
    """The jobs of all replicas, in one database. Every replica has one of these."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.database = DatabaseThread(state_dir, "jobs", table.SCHEMA)
        self._worker = token_hex(8)
        self._is_stuck = False
        self._has_news: dict[type[Any], asyncio.Event] = defaultdict(asyncio.Event)

    async def add(self, job: QueuedJob[Any]) -> None:
        await self.database.run(table.add, job)
        self.wake(type(job.data))

    def wake(self, data: type[Any]) -> None:
        """Wake idle workers so that they look for jobs of this kind at once."""
        self._has_news[data].set()

    @asynccontextmanager
    async def run_workers(self, *handlers: Handler[Any]) -> AsyncIterator[None]:
        """Run jobs, and delete what has expired, until the block ends."""
        await self._ignore_storage_errors(self._sweep(handlers))
        loops = [self._work(handler) for handler in handlers for _ in range(handler.num_at_once)]
        tasks = [asyncio.create_task(loop) for loop in (*loops, self._sweep_often(handlers))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, handler: Handler[Any]) -> None:
        has_news = self._has_news[handler.data]
        while True:
            has_news.clear()
            if (job := await self._claim(handler)) is not None:
                await self._run(handler, job)
                continue
            # The work that killed replicas leave sends no signal, so poll for it.
            # Not wait_for: it may swallow a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await has_news.wait()

    async def _claim(self, handler: Handler[Data]) -> QueuedJob[Data] | None:
        claim = (table.claim, handler.data, self._worker, time.time(), LEASE_SECONDS)
        return await self._ignore_storage_errors(self.database.run(*claim))

    async def _run(self, handler: Handler[Data], job: QueuedJob[Data]) -> None:
        """Run a job. If that fails its lease is left to run out: other jobs come first."""
        try:
            await handler.run(job, Lease(self.database, job, self._worker))
        except Exception as error:
            is_known = isinstance(error, AttendantError)
            trace = None if is_known else error
            logger.error("%s %s waits: %r", job.data.KIND, job.id, error, exc_info=trace)
        except BaseException:
            self.database.start(table.release, job.id, self._worker)
            raise
        else:
            self.database.start(table.release, job.id, self._worker)

    async def _sweep_often(self, handlers: Sequence[Handler[Any]]) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self._ignore_storage_errors(self._sweep(handlers))

    async def _sweep(self, handlers: Sequence[Handler[Any]]) -> None:
        """Delete expired jobs and files, and what replicas left that were killed while storing."""
        expired = await self.database.run(table.ids, time.time())
        for handler in handlers:  # files first: to forget them needs room for a moment
            await asyncio.to_thread(handler.folder.remove, *expired)
        await self.database.run(table.remove, expired)
        job_ids = await self.database.run(table.ids)
        for handler in handlers:
            await asyncio.to_thread(handler.folder.remove_abandoned, job_ids)

    async def _ignore_storage_errors(self, work: Awaitable[Result]) -> Result | None:
        """Return the result of work; None where the state cannot be used, as on a full disk. This
        is logged once, until it can be used again.
        """
        try:
            result = await work
        except StorageError as error:
            if not self._is_stuck:
                logger.warning("documents and batches wait: %s", error)
            self._is_stuck = True
            return None
        self._is_stuck = False
        return result
