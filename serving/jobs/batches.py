"""Batches: files of requests, answered when there is room, and the files of their answers.

Both are stored, so that a restarted server, or another replica, continues with what is left: a
line that has a result is not answered again. Other owners cannot see that they exist.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from io import SEEK_END
from itertools import chain, islice
from pathlib import Path
from secrets import token_hex
from shutil import copyfileobj
from typing import Any, BinaryIO, ClassVar

from serving.errors import NoSuchObject, RequestError, TooLarge
from serving.jobs import table
from serving.jobs.batch_lines import FILE_IS_GONE, Line, problems_of, read_lines
from serving.jobs.queue import JobQueue, Lease
from serving.jobs.table import OPEN, FileRecord, JobState, QueuedJob
from serving.storage.files import COPY_BYTES, enter_in_thread, run_in_thread

WINDOW = "24h"
INPUT_PURPOSE = "batch"
MAX_FILE_MIB = 100
MAX_ALL_MIB = 4_096
_PAGE_LINES = 100  # in memory at once while a batch ends
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
        self.files = queue.state.files("files")
        self._queue, self._database, self._answer = queue, queue.database, answer

    async def add_file(self, owner: str, name: str, file: BinaryIO) -> FileRecord:
        """Store a file. Raises TooLarge, RequestError and StorageError."""
        if "\0" in name:  # PostgreSQL cannot store it
            raise RequestError("file", name, "its name must not contain a NUL character")
        if await run_in_thread(self.files.num_bytes) > MAX_ALL_MIB * 2**20:
            raise TooLarge("file", name, "has no room: delete files, or wait until some expire")
        file_id = _new_id("file-")
        size = await run_in_thread(self._store, file, file_id)
        record = await self._file_record(file_id, owner, INPUT_PURPOSE, name, size)
        await self._database.run(table.add_file, record)
        return record

    def _store(self, file: BinaryIO, file_id: str) -> int:
        """Copy an upload and return its size in bytes. Raises TooLarge and StorageError."""
        size = file.seek(0, SEEK_END)
        file.seek(0)
        if size > MAX_FILE_MIB * 2**20:
            raise TooLarge("file", "the file", f"has more than {MAX_FILE_MIB} MiB")
        with self.files.writing(file_id) as path, path.open("wb") as target:
            copyfileobj(file, target, COPY_BYTES)
        return size

    async def file(self, owner: str, file_id: str, field: str = "file_id") -> FileRecord:
        """Return the record of a file. Raises NoSuchObject."""
        record = await self._database.run(table.find_file, file_id, owner)
        if record is None:
            raise NoSuchObject(field, file_id)
        return record

    async def files_of(self, owner: str) -> list[FileRecord]:
        return await self._database.run(table.files_of, owner)

    async def open_file(self, owner: str, file_id: str) -> BinaryIO:
        """Return a file, open for reading. Raises NoSuchObject."""
        record = await self.file(owner, file_id)
        try:
            return await run_in_thread(self.files.open, record.id)
        except FileNotFoundError:  # a kill came between its deletion and that of its record
            raise NoSuchObject("file_id", file_id) from None

    async def delete_file(self, owner: str, file_id: str) -> None:
        """Delete a file. Raises NoSuchObject, and RequestError while a batch reads it."""
        record = await self.file(owner, file_id)
        batches = await self.batches_of(owner)
        if any(batch.state in OPEN and batch.data.input_file == file_id for batch in batches):
            raise RequestError("file_id", file_id, "a batch reads it; cancel that first")
        # In this order a full disk can be emptied: to forget a file needs room for a moment.
        await run_in_thread(self.files.remove, record.id)
        await self._database.run(table.remove, [record.id])

    async def create(
        self, owner: str, endpoint: str, input_file: str, metadata: Mapping[str, str]
    ) -> Batch:
        """Queue a batch. Raises NoSuchObject, and RequestError for a file of answers."""
        record = await self.file(owner, input_file, "input_file_id")
        if record.purpose != INPUT_PURPOSE:
            message = f'its purpose must be "{INPUT_PURPOSE}"'
            raise RequestError("input_file_id", input_file, message)
        now = int(await self._queue.time())
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

    async def batches_of(self, owner: str) -> list[Batch]:
        return await self._database.run(table.jobs_of, BatchData, owner)

    async def cancel(self, owner: str, batch_id: str) -> Batch:
        """Stop a batch; it ends with the answers so far.

        Raises NoSuchObject, and RequestError for a batch that has ended otherwise.
        """
        batch = await self._database.run(table.cancel, BatchData, batch_id, owner)
        if batch is None:
            raise NoSuchObject("batch_id", batch_id)
        if batch.state not in (JobState.CANCELLING, JobState.CANCELLED):
            raise RequestError("batch_id", batch_id, f"cannot be cancelled: it is {batch.state}")
        self._queue.wake(BatchData)
        return batch

    async def run(self, job: Batch, lease: Lease) -> None:
        """Bring a batch to its end, whatever its state."""
        if job.state is JobState.QUEUED:
            await lease.hold(self._validate(job, lease))
            job = await self.batch(job.owner, job.id)
        if job.state is JobState.IN_PROGRESS and job.worker == lease.worker:
            await lease.hold(self._answer_all(job, lease), job.data.expires_at)
            job = await self.batch(job.owner, job.id)
        if job.state in OPEN and job.worker == lease.worker:
            await lease.hold(self._finish(job, lease))

    async def _validate(self, job: Batch, lease: Lease) -> None:
        try:
            async with enter_in_thread(self.files.reading(job.data.input_file)) as path:
                problems, count = await asyncio.to_thread(problems_of, path, job.data.endpoint)
        except FileNotFoundError:
            problems, count = [FILE_IS_GONE], 0
        state = JobState.FAILED if problems else JobState.IN_PROGRESS
        await lease.enter(job, state, problems=problems, num_lines=count)

    async def _answer_all(self, job: Batch, lease: Lease) -> None:
        async with enter_in_thread(self.files.reading(job.data.input_file)) as path:
            lines = await self._lines_left(job, path)
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

    async def _lines_left(self, job: Batch, path: Path) -> Iterator[Line]:
        """Return the lines that have no result yet."""
        done = await self._database.run(table.result_numbers, job.id)
        return (line for line in read_lines(path) if line.number not in done)

    async def _finish(self, job: Batch, lease: Lease) -> None:
        """Write the files of answers and end the batch. Begun again, it goes on."""
        if job.state is JobState.IN_PROGRESS:
            has_expired = job.num_results < job.data.num_lines
            finalizing = await lease.enter(job, JobState.FINALIZING, has_expired=has_expired)
            if finalizing is None:
                return  # it was cancelled, or another worker has it
            job = finalizing
        if job.data.has_expired:
            await self._expire_lines(job, lease)
        output = await self._write_results(job, "output", is_error=False)
        errors = await self._write_results(job, "error", is_error=True)
        ids = {"output_file": output and output.id, "error_file": errors and errors.id}
        await lease.enter(job, _end_of(job), [file for file in (output, errors) if file], **ids)

    async def _expire_lines(self, job: Batch, lease: Lease) -> None:
        """Store an error for each line that has no answer."""
        error = {"code": "batch_expired", "message": "not answered before the batch expired"}
        async with enter_in_thread(self.files.reading(job.data.input_file)) as path:
            lines = await self._lines_left(job, path)
            while page := {
                line.number: _result(job, line, error=error) for line in islice(lines, _PAGE_LINES)
            }:
                await lease.save(page, is_error=True)

    async def _write_results(self, job: Batch, name: str, is_error: bool) -> FileRecord | None:
        """Write one file of results; return None if there are no results. A repeated call uses the
        same id.
        """
        file_id = f"file-{job.id}-{name}"
        size = await run_in_thread(self._write_pages, job.id, file_id, is_error)
        if not size:
            return None
        name = f"{job.id}_{name}.jsonl"
        return await self._file_record(file_id, job.owner, "batch_output", name, size)

    def _write_pages(self, job_id: str, file_id: str, is_error: bool) -> int:
        """Write results to a file, a page of them at a time, and return its size in bytes. Without
        results there is no file.
        """
        pages = self._result_pages(job_id, is_error)
        if (page := next(pages, None)) is None:
            return 0
        with self.files.writing(file_id) as path, path.open("wb") as file:
            for texts in chain([page], pages):
                file.writelines(f"{text}\n".encode() for text in texts)
            return file.tell()

    def _result_pages(self, job_id: str, is_error: bool) -> Iterator[Collection[str]]:
        number = 0
        while page := self._database.run_blocking(
            table.results_after, job_id, number, is_error, _PAGE_LINES
        ):
            yield page.values()
            number = max(page)

    async def _file_record(
        self, file_id: str, owner: str, purpose: str, name: str, size: int
    ) -> FileRecord:
        now = int(await self._queue.time())
        return FileRecord(file_id, owner, purpose, name, size, now, now + _KEPT_SECONDS)


def _end_of(job: Batch) -> JobState:
    if JobState.CANCELLING in job.times:
        return JobState.CANCELLED
    return JobState.EXPIRED if job.data.has_expired else JobState.COMPLETED


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
