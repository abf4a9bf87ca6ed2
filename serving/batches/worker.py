"""Works on batches that wait, one at a time and some of its lines at once, as long as a replica
lives.
"""

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from serving.batches import tables
from serving.batches.files import FileFolder
from serving.batches.lines import Line, problems_of, read_lines
from serving.batches.tables import BatchRecord, FileRecord, State
from serving.errors import StorageError
from serving.storage import DatabaseThread

logger = logging.getLogger(__name__)

LEASE_SECONDS = 15.0
LINES_AT_ONCE = 16
_RENEWS_EVERY_SECONDS = 1.0
_LOOKS_EVERY_SECONDS = 5.0
_RESULTS_KEPT_SECONDS = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Asked:
    """Asks for the answer to one line. id: names the request."""

    id: str
    owner: str
    endpoint: str
    body: dict[str, Any]


Run = Callable[[Asked], Awaitable[tuple[int, Any]]]  # returns the status and the JSON of an answer


class Worker:
    """Works on batches of the database, its own replica's and those that others left."""

    def __init__(self, database: DatabaseThread, folder: FileFolder, run: Run) -> None:
        self._database, self._folder, self._run = database, folder, run
        self._name = token_hex(8)
        self._has_news = asyncio.Event()

    def wake(self) -> None:
        """Say that there is something new."""
        self._has_news.set()

    async def run(self) -> None:
        """Work until this is cancelled; then give back what is not done."""
        while True:
            self._has_news.clear()
            if (batch := await self._claimed()) is not None:
                await self._work(batch)
                continue
            # What other replicas leave tells nobody.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), _LOOKS_EVERY_SECONDS)

    async def _claimed(self) -> BatchRecord | None:
        """Take a batch; none while the database cannot be used."""
        try:
            return await self._database.run(tables.claim, self._name, time.time(), LEASE_SECONDS)
        except (StorageError, sqlite3.DatabaseError) as error:
            logger.error("batches wait: %s", error)
            return None

    async def _work(self, batch: BatchRecord) -> None:
        try:
            await self._advanced(batch)
        except Exception as error:  # it stays leased for a while, in which others have their turn
            logger.error("batch %s waits: %r", batch.id, error, exc_info=error)
        except BaseException:
            self._database.start(tables.give_back, batch.id, self._name)
            raise
        else:
            self._database.start(tables.give_back, batch.id, self._name)

    async def _advanced(self, batch: BatchRecord) -> None:
        """Bring a batch to its end, from wherever it is."""
        if batch.state is State.VALIDATING:
            batch = await self._validated(batch)
        if batch.state is State.IN_PROGRESS and not await self._held(batch):
            return
        if batch.state in tables.OPEN:
            await self._finished(batch)

    async def _validated(self, batch: BatchRecord) -> BatchRecord:
        path = self._folder.path(batch.input_file)
        problems, count = await asyncio.to_thread(problems_of, path, batch.endpoint)
        state = State.FAILED if problems else State.IN_PROGRESS
        batch = batch.entering(state, time.time(), problems=problems, num_lines=count)
        is_own = await self._database.run(tables.enter, batch, self._name)
        return batch if is_own else await self._as_it_is(batch)

    async def _held(self, batch: BatchRecord) -> bool:
        """Keep the lease of a batch while its lines are answered. Stop them once the batch is
        cancelled or has expired; return whether it is still this worker's.
        """
        work = asyncio.create_task(self._answer_all(batch))
        state: State | None = State.IN_PROGRESS
        try:
            while not (await asyncio.wait([work], timeout=_RENEWS_EVERY_SECONDS))[0]:
                until = time.time() + LEASE_SECONDS
                state = await self._database.run(tables.renew, batch.id, self._name, until)
                if state is not State.IN_PROGRESS or time.time() > batch.expires_at:
                    return state is not None
            await work
            return True
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _answer_all(self, batch: BatchRecord) -> None:
        done = await self._database.run(tables.done, batch.id)
        lines = read_lines(self._folder.path(batch.input_file))
        left = (line for line in lines if line.number not in done)
        async with asyncio.TaskGroup() as group:
            for _ in range(LINES_AT_ONCE):
                group.create_task(self._answer_some(batch, left))

    async def _answer_some(self, batch: BatchRecord, lines: Iterator[Line]) -> None:
        for line in lines:
            request = Asked(f"{batch.id}-{line.number}", batch.owner, batch.endpoint, line.body)
            status, body = await self._run(request)
            response = {"status_code": status, "request_id": request.id, "body": body}
            text = _result(batch, line, response, None)
            arguments = (batch.id, self._name, line.number, status != 200, text)
            await self._database.run(tables.save, *arguments)

    async def _finished(self, batch: BatchRecord) -> None:
        """Write the files of results, and say how the batch has ended."""
        batch = await self._as_it_is(batch)
        if batch.state is State.IN_PROGRESS:
            await self._note_expired(batch)
            batch = batch.entering(State.FINALIZING, time.time())
            if not await self._database.run(tables.enter, batch, self._name):
                batch = await self._as_it_is(batch)
                if batch.state is not State.CANCELLING:
                    return  # another worker has it
        kinds = (("output", False), ("error", True))
        found = [await self._result_file(batch, *kind) for kind in kinds]
        output, errors = (each and each.id for each in found)
        end = self._end_of(batch)
        ended = batch.entering(end, time.time(), output_file=output, error_file=errors)
        await self._database.run(tables.enter, ended, self._name, [each for each in found if each])

    def _end_of(self, batch: BatchRecord) -> State:
        if State.CANCELLING in batch.times:
            return State.CANCELLED
        return State.EXPIRED if "expiring" in batch.times else State.COMPLETED

    async def _as_it_is(self, batch: BatchRecord) -> BatchRecord:
        found = await self._database.run(tables.batch, batch.id, batch.owner)
        assert found is not None, "open batches are not removed"
        return found

    async def _note_expired(self, batch: BatchRecord) -> None:
        """Say of the lines that were not answered in time that they were not."""
        error = {"code": "batch_expired", "message": "not answered before the batch expired"}
        done = await self._database.run(tables.done, batch.id)
        left = [
            line
            for line in read_lines(self._folder.path(batch.input_file))
            if line.number not in done
        ]
        if left:
            batch.times["expiring"] = int(time.time())
        for line in left:
            text = _result(batch, line, None, error)
            await self._database.run(tables.save, batch.id, self._name, line.number, True, text)

    async def _result_file(
        self, batch: BatchRecord, kind: str, is_error: bool
    ) -> FileRecord | None:
        """Write one file of results; None if there are none. It has the same id each time."""
        lines: Sequence[str] = await self._database.run(tables.lines, batch.id, is_error)
        if not lines:
            return None
        file_id = f"file-{batch.id}-{kind}"
        chunks = (f"{line}\n".encode() for line in lines)
        size = await asyncio.to_thread(self._folder.write, file_id, chunks)
        now = int(time.time())
        name, until = f"{batch.id}_{kind}.jsonl", now + _RESULTS_KEPT_SECONDS
        return FileRecord(file_id, batch.owner, "batch_output", name, size, now, until)


def _result(
    batch: BatchRecord, line: Line, response: dict[str, Any] | None, error: dict[str, Any] | None
) -> str:
    return json.dumps(
        {
            "id": f"batch_req_{batch.id.removeprefix('batch_')}_{line.number}",
            "custom_id": line.custom_id,
            "response": response,
            "error": error,
        }
    )
