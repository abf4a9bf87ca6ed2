"""Jobs in a database: what was asked for, the results so far, and which worker runs which job.

A worker has a job for as long as its lease, which it renews. A lease that has run out belongs to a
worker that is gone: another worker takes the job, with all its results. All times are those of the
database: the clocks of machines differ.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from serving.storage.database import Connection, Row
from serving.storage.schema import Migration, Schema

_FIRST = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, owner TEXT NOT NULL, state TEXT NOT NULL,
    data TEXT NOT NULL, times TEXT NOT NULL, created_at REAL NOT NULL, kept_until REAL NOT NULL,
    worker TEXT, leased_until REAL NOT NULL DEFAULT 0,
    claimed_at REAL NOT NULL DEFAULT 0, num_results_at_claim INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS results (
    job TEXT NOT NULL, number INTEGER NOT NULL, is_error INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL,
    num_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, kept_until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
SCHEMA = Schema(
    "jobs",
    [
        Migration(_FIRST),
        # Results are counted whenever somebody asks for the state of a job: of a batch with 50,000
        # the second index is read in 26 ms, the table, whose rows have the texts, in 1256 ms.
        Migration("""
            CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (kind, state, created_at);
            CREATE INDEX IF NOT EXISTS results_by_error ON results (job, is_error);
        """),
    ],
)
_JOB = (
    "SELECT *, (SELECT count(*) FROM results WHERE job = id) AS num_results,"
    " (SELECT CAST(coalesce(sum(is_error), 0) AS BIGINT) FROM results WHERE job = id) AS num_errors"
    " FROM jobs"
)


_PAGE_NUMBERS = 1_000  # rows in memory at once


class JobState(StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


OPEN = (JobState.QUEUED, JobState.IN_PROGRESS, JobState.FINALIZING, JobState.CANCELLING)


class JobData(Protocol):
    """A frozen dataclass of what one kind of job asks for."""

    KIND: ClassVar[str]


Data = TypeVar("Data", bound=JobData)


@dataclass(frozen=True, slots=True)
class QueuedJob(Generic[Data]):
    """A queued job.

    owner: the name of the API key that was shown; empty where the server asks for none.
    times: when the job entered each state, in whole seconds.
    kept_until: when the job is deleted with its results.
    worker, claimed_at, num_results_at_claim: of the last lease; the worker is None after it.
    read_at: when the job was read.
    """

    id: str
    owner: str
    data: Data
    created_at: float
    kept_until: float
    state: JobState = JobState.QUEUED
    times: Mapping[str, int] = field(default_factory=dict)
    worker: str | None = None
    claimed_at: float = 0.0
    num_results_at_claim: int = 0
    num_results: int = 0
    num_errors: int = 0
    read_at: float = 0.0

    @property
    def has_expired(self) -> bool:
        """Return whether the job is no longer kept, though it may not be deleted yet."""
        return self.kept_until < self.read_at

    def entering(self, state: JobState, now: float, **changes: Any) -> "QueuedJob[Data]":
        """Return the job in another state, with changes to its data."""
        data = replace(self.data, **changes)  # type: ignore[type-var]  # always a dataclass
        return replace(self, state=state, times={**self.times, state: int(now)}, data=data)


@dataclass(frozen=True, slots=True)
class FileRecord:
    id: str
    owner: str
    purpose: str
    name: str
    num_bytes: int
    created_at: int
    kept_until: int


def read_time(connection: Connection) -> float:
    return connection.time()


def add(connection: Connection, job: QueuedJob[Any]) -> None:
    values = (job.id, job.data.KIND, job.owner, job.state, *_data_and_times(job))
    connection.execute(
        "INSERT INTO jobs (id, kind, owner, state, data, times, created_at, kept_until)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, job.created_at, job.kept_until),
    )


def find(connection: Connection, data: type[Data], job_id: str) -> QueuedJob[Data] | None:
    if not _is_id(job_id):
        return None
    row = connection.row(f"{_JOB} WHERE kind = ? AND id = ?", (data.KIND, job_id))
    return _job(row, data, connection.time()) if row else None


def jobs_of(connection: Connection, data: type[Data], owner: str) -> list[QueuedJob[Data]]:
    """Return the jobs of an owner, the newest first."""
    query = f"{_JOB} WHERE kind = ? AND owner = ? ORDER BY created_at DESC, id DESC"
    now = connection.time()
    return [_job(row, data, now) for row in connection.rows(query, (data.KIND, owner))]


def cancel(
    connection: Connection, data: type[Data], job_id: str, owner: str
) -> QueuedJob[Data] | None:
    """Mark a job as being cancelled, unless it is ending already; its worker notices soon."""
    if not _is_id(job_id):
        return None
    with connection.transaction():
        lock = "UPDATE jobs SET state = state WHERE kind = ? AND id = ? AND owner = ?"
        if not connection.execute(lock, (data.KIND, job_id, owner)):
            return None
        job = find(connection, data, job_id)
        if job is not None and job.state in (JobState.QUEUED, JobState.IN_PROGRESS):
            job = job.entering(JobState.CANCELLING, connection.time())
            _write(connection, job)
    return job


def claim(
    connection: Connection, data: type[Data], worker: str, lease_seconds: float
) -> QueuedJob[Data] | None:
    """Lease to a worker the oldest open job that no worker has, or whose lease has run out.

    worker: an id that no other lease has.
    """
    now = connection.time()
    if _waiting(connection, data.KIND, now) is None:  # nearly always, and without a lock
        return None
    with connection.transaction():
        if (job_id := _waiting(connection, data.KIND, now, connection.SKIP_LOCKED)) is None:
            return None
        connection.execute(
            "UPDATE jobs SET worker = ?, leased_until = ?, claimed_at = ?, num_results_at_claim ="
            " (SELECT count(*) FROM results WHERE job = id) WHERE id = ?",
            (worker, now + lease_seconds, now, job_id),
        )
        return find(connection, data, job_id)


def claim_completed(connection: Connection, job_id: str, worker: str, lease_seconds: float) -> bool:
    """Lease a completed job to whoever fetches its result; return False if somebody else does."""
    now = connection.time()
    change = (
        "UPDATE jobs SET worker = ?, leased_until = ? WHERE id = ? AND state = ?"
        " AND (worker IS NULL OR leased_until < ?)"
    )
    values = (worker, now + lease_seconds, job_id, JobState.COMPLETED, now)
    return connection.execute(change, values) == 1


def renew(
    connection: Connection, job_id: str, worker: str, lease_seconds: float
) -> JobState | None:
    """Prolong a lease. Return the state of the job; None if the worker has lost it.

    Until the end of a transaction nobody else can change the job then.
    """
    change = "UPDATE jobs SET leased_until = ? WHERE id = ? AND worker = ? RETURNING state"
    row = connection.row(change, (connection.time() + lease_seconds, job_id, worker))
    return JobState(row["state"]) if row else None


def release(connection: Connection, job_id: str, worker: str) -> None:
    change = "UPDATE jobs SET worker = NULL, leased_until = 0 WHERE id = ? AND worker = ?"
    connection.execute(change, (job_id, worker))


def enter(
    connection: Connection,
    job: QueuedJob[Data],
    worker: str,
    lease_seconds: float,
    state: JobState,
    files: Iterable[FileRecord] = (),
    **changes: Any,
) -> QueuedJob[Data] | None:
    """Store that a job has entered a state, with changes to its data, together with its files. A
    state in which there is nothing left to do ends the lease.

    Return the job as it is stored now. Return None, and store nothing, if the worker has lost the
    job or the job was cancelled meanwhile.
    """
    with connection.transaction():
        stored = renew(connection, job.id, worker, lease_seconds)
        is_cancelled = stored is JobState.CANCELLING and JobState.CANCELLING not in job.times
        if stored is None or is_cancelled:
            return None
        job = job.entering(state, connection.time(), **changes)
        for record in files:
            add_file(connection, record)
        _write(connection, job)
        if state not in OPEN:
            release(connection, job.id, worker)
    return job


def save_results(
    connection: Connection,
    job_id: str,
    worker: str,
    lease_seconds: float,
    texts: Mapping[int, str],
    is_error: bool = False,
) -> None:
    """Store results by their numbers, unless the worker has lost the job."""
    with connection.transaction():
        if renew(connection, job_id, worker, lease_seconds) is not None:
            connection.execute_many(
                "INSERT INTO results (job, number, is_error, text) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (job, number) DO NOTHING",
                [(job_id, number, int(is_error), text) for number, text in texts.items()],
            )


def results(connection: Connection, job_id: str) -> dict[int, str]:
    """Return all results that are no errors, in the order of their numbers."""
    query = "SELECT number, text FROM results WHERE job = ? AND is_error = 0 ORDER BY number"
    return {row["number"]: row["text"] for row in connection.rows(query, (job_id,))}


def results_after(
    connection: Connection, job_id: str, number: int, is_error: bool, count: int
) -> dict[int, str]:
    """Return the next results after a number, at most `count`, in the order of their numbers."""
    query = (
        "SELECT number, text FROM results WHERE job = ? AND number > ? AND is_error = ?"
        " ORDER BY number LIMIT ?"
    )
    rows = connection.rows(query, (job_id, number, int(is_error), count))
    return {row["number"]: row["text"] for row in rows}


def result_numbers(connection: Connection, job_id: str) -> set[int]:
    query = "SELECT number FROM results WHERE job = ? AND number > ? ORDER BY number LIMIT ?"
    numbers: set[int] = set()
    last = -1
    while page := [row["number"] for row in connection.rows(query, (job_id, last, _PAGE_NUMBERS))]:
        numbers.update(page)
        last = page[-1]
    return numbers


def add_file(connection: Connection, record: FileRecord) -> None:
    """Store the record of a file, in the place of an older one with the same id."""
    names = [field.name for field in fields(record)]
    changes = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
    connection.execute(
        f"INSERT INTO files ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        f" ON CONFLICT (id) DO UPDATE SET {changes}",
        [*asdict(record).values()],
    )


def find_file(connection: Connection, file_id: str, owner: str) -> FileRecord | None:
    if not _is_id(file_id):
        return None
    query = "SELECT * FROM files WHERE id = ? AND owner = ? AND kept_until > ?"
    row = connection.row(query, (file_id, owner, connection.time()))
    return FileRecord(**row) if row else None


def files_of(connection: Connection, owner: str) -> list[FileRecord]:
    """Return the files of an owner, the newest first."""
    query = (
        "SELECT * FROM files WHERE owner = ? AND kept_until > ? ORDER BY created_at DESC, id DESC"
    )
    return [FileRecord(**row) for row in connection.rows(query, (owner, connection.time()))]


def remove(connection: Connection, ids: Iterable[str]) -> None:
    """Delete jobs with their results, and files."""
    # In one order, so that two who delete the same never wait for each other. Jobs come first:
    # nobody stores a result of a job that is locked.
    rows = [(id_,) for id_ in sorted(ids)]
    with connection.transaction():
        connection.execute_many("DELETE FROM jobs WHERE id = ?", rows)
        connection.execute_many("DELETE FROM results WHERE job = ?", rows)
        connection.execute_many("DELETE FROM files WHERE id = ?", rows)


def all_ids(connection: Connection) -> list[str]:
    """Return the ids of all jobs and files."""
    query = "SELECT id FROM jobs UNION SELECT id FROM files"
    return [row["id"] for row in connection.rows(query)]


def expired_ids(connection: Connection) -> list[str]:
    """Return the ids of the jobs and files that are no longer kept."""
    query = (
        "SELECT id FROM jobs WHERE kept_until < ? UNION SELECT id FROM files WHERE kept_until < ?"
    )
    return [row["id"] for row in connection.rows(query, [connection.time()] * 2)]


def _is_id(text: str) -> bool:
    """Return whether a text that a client sent may be an id: of others, such as those with NUL or
    half a surrogate pair, no database can be asked.
    """
    return text.isascii() and text.isprintable()


def _waiting(connection: Connection, kind: str, now: float, lock: str = "") -> str | None:
    marks = ", ".join("?" * len(OPEN))
    row = connection.row(
        f"SELECT id FROM jobs WHERE kind = ? AND state IN ({marks})"
        f" AND (worker IS NULL OR leased_until < ?) ORDER BY created_at, id LIMIT 1 {lock}",
        (kind, *OPEN, now),
    )
    return row["id"] if row else None


def _write(connection: Connection, job: QueuedJob[Any]) -> None:
    change = "UPDATE jobs SET state = ?, data = ?, times = ? WHERE id = ?"
    connection.execute(change, (job.state, *_data_and_times(job), job.id))


def _data_and_times(job: QueuedJob[Any]) -> tuple[str, str]:
    """Return both as JSON. Fields that have their default are left out: so an older version, which
    knows fewer fields, can read the jobs that do not use new ones.
    """
    defaults = {field.name: field.default for field in fields(job.data)}
    changed = {name: value for name, value in asdict(job.data).items() if value != defaults[name]}
    return json.dumps(changed), json.dumps(job.times)


def _job(row: Row, data: type[Data], now: float) -> QueuedJob[Data]:
    values = {field.name: row[field.name] for field in fields(QueuedJob) if field.name in row}
    values["data"] = data(**json.loads(row["data"]))
    values["state"], values["times"] = JobState(row["state"]), json.loads(row["times"])
    return QueuedJob(**values, read_at=now)
