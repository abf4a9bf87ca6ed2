"""Batches: files of requests, answered when there is room, and the files of their answers.

Both are on disk, so that a restarted server, or another replica, continues with what is left: a
line that has a result is not answered again. Other owners cannot see that they exist.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO, ClassVar

from serving.errors import NoSuchObject, RequestError, TooLarge
from serving.jobs import table
from serving.jobs.batch_lines import Line, problems_of, read_lines
from serving.jobs.folder import JobFolder
from serving.jobs.queue import JobQueue, Lease
from serving.jobs.table import OPEN, FileRecord, JobState, QueuedJob

WINDOW = "24h"
INPUT_PURPOSE = "batch"
MAX_FILE_MIB = 100
MAX_ALL_MIB = 4_096
LINES_AT_ONCE = 16  # a part of the slots: clients who wait come first
_WINDOW_SECONDS = 86_400  # of WINDOW, the only one that OpenAI has
_KEPT_SECONDS = 30 * 86_400  # as long as OpenAI keeps outputs of batches


@dataclass(frozen=True, slots=True)
class BatchData:
    """What is asked of a batch, and how it ended.

    expires_at: lines that have no answer by then get none.
    num_lines: 0 until the lines are checked.
    problems: why it failed, each with its line.
    """

    KIND: ClassVar[str] = "batch"

    endpoint: str
    input_file: str
    window: str
    expires_at: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    num_lines: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    has_expired: bool = False
    output_file: str | None = None
    error_file: str | None = None


Batch = QueuedJob[BatchData]


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One line of a batch, as a request to its endpoint. id: of the request, in logs."""

    id: str
    owner: str
    endpoint: str
    body: dict[str, Any]


Answer = Callable[[BatchRequest], Awaitable[tuple[int, Any]]]  # returns a status and JSON


class Batches:
    """The files and batches of a server; also the queue's handler of batch jobs.

    owner: the name of the API key that was shown; empty where the server asks for none.
    """

    data = BatchData
    num_at_once = 1

    def __init__(self, queue: JobQueue, answer: Answer) -> None:
        self.folder = JobFolder(queue.state_dir / "files")
        self._queue, self._database, self._answer = queue, queue.database, answer

    async def add_file(self, owner: str, name: str, file: BinaryIO) -> FileRecord:
        """Store a file. Raises TooLarge and StorageError."""
        if await asyncio.to_thread(self.folder.num_bytes) > MAX_ALL_MIB * 2**20:
            raise TooLarge("file", name, "has no room: delete files, or wait until some expire")
        file_id = _new_id("file-")
        path = self.folder.path(file_id)
        size = await asyncio.to_thread(self.folder.copy, file, path, MAX_FILE_MIB)
        record = _file_record(file_id, owner, INPUT_PURPOSE, name, size)
        await self._database.run(table.add_file, record)
        return record

    async def file(self, owner: str, file_id: str, field: str = "file_id") -> FileRecord:
        """Return the record of a file. Raises NoSuchObject."""
        record = None
        if file_id.isascii():  # SQLite cannot be asked for half a surrogate pair
            record = await self._database.run(table.find_file, file_id, owner, time.time())
        if record is None:
            raise NoSuchObject(field, file_id)
        return record

    async def files(self, owner: str) -> list[FileRecord]:
        return await self._database.run(table.files_of, owner, time.time())

    async def content(self, owner: str, file_id: str) -> Path:
        """Return the path of a file. Raises NoSuchObject."""
        path = self.folder.path((await self.file(owner, file_id)).id)
        if not path.is_file():  # a kill came between the deletion of the file and of its record
            raise NoSuchObject("file_id", file_id)
        return path

    async def delete_file(self, owner: str, file_id: str) -> None:
        """Delete a file. Raises NoSuchObject, and RequestError while a batch reads it."""
        record = await self.file(owner, file_id)
        batches = await self.batches(owner)
        if any(batch.state in OPEN and batch.data.input_file == file_id for batch in batches):
            raise RequestError("file_id", file_id, "a batch reads it; cancel that first")
        # In this order a full disk can be emptied: to forget a file needs room for a moment.
        await asyncio.to_thread(self.folder.remove, record.id)
        await self._database.run(table.remove, [record.id])

    async def create(
        self, owner: str, endpoint: str, input_file: str, metadata: Mapping[str, str]
    ) -> Batch:
        """Queue a batch. Raises NoSuchObject, and RequestError for a file of answers."""
        record = await self.file(owner, input_file, "input_file_id")
        if record.purpose != INPUT_PURPOSE:
            message = f'its purpose must be "{INPUT_PURPOSE}"'
            raise RequestError("input_file_id", input_file, message)
        now = int(time.time())
        data = BatchData(endpoint, input_file, WINDOW, now + _WINDOW_SECONDS, metadata)
        batch = QueuedJob(_new_id("batch_"), owner, data, now, now + _KEPT_SECONDS)
        await self._queue.add(batch)
        return batch

    async def batch(self, owner: str, batch_id: str) -> Batch:
        """Raises NoSuchObject."""
        batch = await self._database.run(table.find, BatchData, batch_id)
        if batch is None or batch.owner != owner:
            raise NoSuchObject("batch_id", batch_id)
        return batch

    async def batches(self, owner: str) -> list[Batch]:
        return await self._database.run(table.jobs_of, BatchData, owner)

    async def cancel(self, owner: str, batch_id: str) -> Batch:
        """Stop a batch; it ends with the answers so far.

        Raises NoSuchObject, and RequestError for a batch that has ended otherwise.
        """
        batch = await self._database.run(table.cancel, BatchData, batch_id, owner, time.time())
        if batch is None:
            raise NoSuchObject("batch_id", batch_id)
        if batch.state not in (JobState.CANCELLING, JobState.CANCELLED):
            raise RequestError("batch_id", batch_id, f"cannot be cancelled: it is {batch.state}")
        self._queue.wake(BatchData)
        return batch

    async def run(self, job: Batch, lease: Lease) -> None:
        """Bring a batch to its end, whatever its state."""
        if job.state is JobState.QUEUED:
            job = await self._validate(job, lease)
        if job.state is JobState.IN_PROGRESS:
            answering = self._answer_all(job, lease)
            if await lease.hold(answering, job.data.expires_at) is None:
                return
        if job.state in OPEN:
            await self._finish(job, lease)

    async def _validate(self, job: Batch, lease: Lease) -> Batch:
        path = self.folder.path(job.data.input_file)
        problems, count = await asyncio.to_thread(problems_of, path, job.data.endpoint)
        state = JobState.FAILED if problems else JobState.IN_PROGRESS
        checked = job.entering(state, time.time(), problems=problems, num_lines=count)
        return checked if await lease.update(checked) else await self.batch(job.owner, job.id)

    async def _answer_all(self, job: Batch, lease: Lease) -> None:
        lines = iter(await self._lines_left(job))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(LINES_AT_ONCE):
                    group.create_task(self._answer_some(job, lines, lease))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _answer_some(self, job: Batch, lines: Iterator[Line], lease: Lease) -> None:
        for line in lines:
            request = BatchRequest(
                f"{job.id}-{line.number}", job.owner, job.data.endpoint, line.body
            )
            status, body = await self._answer(request)
            response = {"status_code": status, "request_id": request.id, "body": body}
            text = _result(job, line, response=response)
            await lease.save({line.number: text}, is_error=status != 200)

    async def _lines_left(self, job: Batch) -> Iterator[Line]:
        """Return the lines that have no result yet."""
        done = await self._database.run(table.result_numbers, job.id)
        lines = read_lines(self.folder.path(job.data.input_file))
        return (line for line in lines if line.number not in done)

    async def _finish(self, job: Batch, lease: Lease) -> None:
        """Write the files of answers and end the batch."""
        job = await self.batch(job.owner, job.id)
        if job.state is JobState.IN_PROGRESS:
            has_expired = await self._expire_lines(job, lease)
            job = job.entering(JobState.FINALIZING, time.time(), has_expired=has_expired)
            if not await lease.update(job):
                job = await self.batch(job.owner, job.id)
                if job.state is not JobState.CANCELLING:
                    return  # another worker has it
        output = await self._result_file(job, "output", is_error=False)
        errors = await self._result_file(job, "error", is_error=True)
        remaining = {"output_file": output and output.id, "error_file": errors and errors.id}
        ended = job.entering(_end_of(job), time.time(), **remaining)
        await lease.update(ended, [path for path in (output, errors) if path])

    async def _expire_lines(self, job: Batch, lease: Lease) -> bool:
        """Store an error for each line that has no answer; return whether there are any."""
        error = {"code": "batch_expired", "message": "not answered before the batch expired"}
        remaining = {
            line.number: _result(job, line, error=error) for line in await self._lines_left(job)
        }
        await lease.save(remaining, is_error=True)
        return bool(remaining)

    async def _result_file(self, job: Batch, name: str, is_error: bool) -> FileRecord | None:
        """Write one file of results; return None if there are no results. A repeated call uses the
        same id.
        """
        lines = await self._database.run(table.results, job.id, is_error)
        if not lines:
            return None
        file_id = f"file-{job.id}-{name}"
        chunks = (f"{line}\n".encode() for line in lines.values())
        size = await asyncio.to_thread(self.folder.write, self.folder.path(file_id), chunks)
        return _file_record(file_id, job.owner, "batch_output", f"{job.id}_{name}.jsonl", size)


def _end_of(job: Batch) -> JobState:
    if JobState.CANCELLING in job.times:
        return JobState.CANCELLED
    return JobState.EXPIRED if job.data.has_expired else JobState.COMPLETED


def _file_record(file_id: str, owner: str, purpose: str, name: str, size: int) -> FileRecord:
    now = int(time.time())
    return FileRecord(file_id, owner, purpose, name, size, now, now + _KEPT_SECONDS)


def _new_id(prefix: str) -> str:
    """Return an id that sorts after earlier ones, so that lists of one second are in order."""
    return f"{prefix}{time.time_ns():016x}{token_hex(4)}"


def _result(
    job: Batch,
    line: Line,
    response: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> str:
    return json.dumps(
        {
            "id": f"batch_req_{job.id.removeprefix('batch_')}_{line.number}",
            "custom_id": line.custom_id,
            "response": response,
            "error": error,
        }
    )
