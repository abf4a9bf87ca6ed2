"""The job queue: jobs that outlive the server, and the work of this replica on them."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import Any, Concatenate, Protocol

from serving.errors import AttendantError, StorageError
from serving.jobs import table
from serving.jobs.table import Data, FileRecord, JobState, QueuedJob
from serving.storage.database import Arguments, Connection, Database, Result
from serving.storage.files import FileStore, run_in_thread
from serving.storage.state import State

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0  # until another replica goes on with the job of a killed one
_RENEWAL_SECONDS = 1.0  # far below the lease: a busy disk or processor must not lose the job
_RETRY_SECONDS = 0.5  # while the state cannot be used
_POLL_SECONDS = 5.0  # jobs of this replica start at once; this finds those of other replicas
_SWEEP_SECONDS = 60.0


class Lease:
    """The right of one worker to change a job, until it runs out. Every change prolongs it.

    While the state cannot be used, changes are tried again until the lease has run out: then
    another worker may have the job. All methods raise StorageError.

    worker: an id that no other lease has. ends_at: of the monotonic clock.
    """

    def __init__(self, database: Database, job: QueuedJob[Any], worker: str, ends_at: float):
        self._database, self._job_id, self.worker, self._ends_at = database, job.id, worker, ends_at
        self._state: JobState | None = job.state
        self._in_turns = asyncio.Lock()  # of what reads or changes the state of the job

    async def hold(self, work: Coroutine[Any, Any, None], deadline: float = float("inf")) -> None:
        """Run `work` and renew the lease meanwhile.

        The work is stopped once somebody else has changed the state of the job, as by a
        cancellation, or has taken or removed it, and at the deadline.

        deadline: by the clock of the database.
        """
        task = asyncio.create_task(work)
        try:
            ends_at = deadline
            if deadline < float("inf"):
                ends_at += time.monotonic() - await self._database.run(table.read_time)
            while not (await asyncio.wait([task], timeout=_RENEWAL_SECONDS))[0]:
                async with self._in_turns:
                    is_ours = await self._change(table.renew) is self._state
                if not is_ours or time.monotonic() > ends_at:
                    return
            await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def enter(
        self,
        job: QueuedJob[Data],
        state: JobState,
        files: Iterable[FileRecord] = (),
        **changes: Any,
    ) -> QueuedJob[Data] | None:
        """Store that the job has entered a state; see `table.enter`."""

        def enter(
            connection: Connection, _: str, worker: str, lease_seconds: float
        ) -> QueuedJob[Data] | None:
            return table.enter(connection, job, worker, lease_seconds, state, files, **changes)

        async with self._in_turns:
            stored = await self._change(enter)
            if stored is not None:
                self._state = stored.state
        return stored

    async def save(self, texts: Mapping[int, str], is_error: bool = False) -> None:
        """Store results; see `table.save_results`."""
        await self._change(table.save_results, texts, is_error)

    async def _change(
        self,
        change: Callable[Concatenate[Connection, str, str, float, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return the result of a change of the job, which prolongs the lease."""
        while True:
            started_at = time.monotonic()
            try:
                result = await self._database.run(
                    change, self._job_id, self.worker, LEASE_SECONDS, *arguments, **options
                )
            except StorageError:
                if time.monotonic() > self._ends_at:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._ends_at = max(self._ends_at, started_at + LEASE_SECONDS)
                return result


class Handler(Protocol[Data]):
    """Runs the jobs of one kind.

    num_at_once: how many jobs of a replica run at the same time.
    files: those of the jobs.
    """

    data: type[Data]
    num_at_once: int
    files: FileStore

    async def run(self, job: QueuedJob[Data], lease: Lease) -> None:
        """Bring a job to its end, whatever its state. After an error it is tried again later."""


class JobQueue:
    """The jobs of all replicas, in one database. Every replica has one of these."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.database = state.database(table.SCHEMA)
        self._is_stuck = False
        self._has_news: dict[type[Any], asyncio.Event] = defaultdict(asyncio.Event)

    async def add(self, job: QueuedJob[Any]) -> None:
        await self.database.run(table.add, job)
        self.wake(type(job.data))

    async def time(self) -> float:
        """Return the time by the clock that all replicas share."""
        return await self.database.run(table.read_time)

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
            if await self._run_next(handler):
                continue
            # The work that killed replicas leave sends no signal, so poll for it.
            # Not wait_for: it may swallow a cancellation that comes together with news.
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await has_news.wait()

    async def _run_next(self, handler: Handler[Any]) -> bool:
        """Run a job, if one waits. If that fails its lease is left to run out: other jobs come
        first.
        """
        worker, ends_at = token_hex(8), time.monotonic() + LEASE_SECONDS
        claim = self.database.run(table.claim, handler.data, worker, LEASE_SECONDS)
        if (job := await self._ignore_storage_errors(claim)) is None:
            return False
        release = partial(self.database.run, table.release, job.id, worker)
        try:
            await handler.run(job, Lease(self.database, job, worker, ends_at))
        except Exception as error:
            is_known = isinstance(error, AttendantError)
            trace = None if is_known else error
            logger.error("%s %s waits: %r", job.data.KIND, job.id, error, exc_info=trace)
        except BaseException:
            await self._ignore_storage_errors(release())
            raise
        else:
            await self._ignore_storage_errors(release())
        return True

    async def _sweep_often(self, handlers: Sequence[Handler[Any]]) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await self._ignore_storage_errors(self._sweep(handlers))

    async def _sweep(self, handlers: Sequence[Handler[Any]]) -> None:
        """Delete expired jobs and files, and what replicas left that were killed while storing."""
        expired = await self.database.run(table.expired_ids)
        for handler in handlers:  # files first: to forget them needs room for a moment
            await run_in_thread(handler.files.remove, *expired)
        await self.database.run(table.remove, expired)
        ids = await self.database.run(table.all_ids)
        for handler in handlers:
            await run_in_thread(handler.files.remove_abandoned, ids)

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
