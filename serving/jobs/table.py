"""Jobs in a database: what was asked for, the results so far, and which worker runs which job.

A worker has a job for as long as its lease, which it renews. A lease that has run out belongs to a
worker that is gone: another worker takes the job, with all its results.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from serving.storage.sqlite import transaction

SCHEMA = """
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
_JOB = (
    "SELECT *, (SELECT count(*) FROM results WHERE job = id) AS num_results,"
    " (SELECT coalesce(sum(is_error), 0) FROM results WHERE job = id) AS num_errors FROM jobs"
)


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


def add(database: sqlite3.Connection, job: QueuedJob[Any]) -> None:
    values = (job.id, job.data.KIND, job.owner, job.state, *_data_and_times(job))
    database.execute(
        "INSERT INTO jobs (id, kind, owner, state, data, times, created_at, kept_until)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, job.created_at, job.kept_until),
    )


def find(database: sqlite3.Connection, data: type[Data], job_id: str) -> QueuedJob[Data] | None:
    query = f"{_JOB} WHERE kind = ? AND id = ?"
    row = database.execute(query, (data.KIND, job_id)).fetchone()
    return _job(row, data) if row else None


def jobs_of(database: sqlite3.Connection, data: type[Data], owner: str) -> list[QueuedJob[Data]]:
    """Return the jobs of an owner, the newest first."""
    query = f"{_JOB} WHERE kind = ? AND owner = ? ORDER BY created_at DESC, id DESC"
    return [_job(row, data) for row in database.execute(query, (data.KIND, owner)).fetchall()]


def cancel(
    database: sqlite3.Connection, data: type[Data], job_id: str, owner: str, now: float
) -> QueuedJob[Data] | None:
    """Mark a job as being cancelled, unless it is ending already; its worker notices soon."""
    with transaction(database):
        job = find(database, data, job_id)
        if job is None or job.owner != owner:
            return None
        if job.state in (JobState.QUEUED, JobState.IN_PROGRESS):
            job = job.entering(JobState.CANCELLING, now)
            _write(database, job)
    return job


def claim(
    database: sqlite3.Connection, data: type[Data], worker: str, now: float, lease_seconds: float
) -> QueuedJob[Data] | None:
    """Lease to a worker the oldest open job that no worker has, or whose lease has run out."""
    if _waiting(database, data.KIND, now) is None:  # nearly always, and without a lock
        return None
    with transaction(database):
        if (job_id := _waiting(database, data.KIND, now)) is None:
            return None
        database.execute(
            "UPDATE jobs SET worker = ?, leased_until = ?, claimed_at = ?, num_results_at_claim ="
            " (SELECT count(*) FROM results WHERE job = id) WHERE id = ?",
            (worker, now + lease_seconds, now, job_id),
        )
        return find(database, data, job_id)


def claim_completed(
    database: sqlite3.Connection, job_id: str, worker: str, now: float, lease_seconds: float
) -> bool:
    """Lease a completed job to whoever fetches its result; return False if somebody else does."""
    changed = database.execute(
        "UPDATE jobs SET worker = ?, leased_until = ? WHERE id = ? AND state = ?"
        " AND (worker IS NULL OR leased_until < ?)",
        (worker, now + lease_seconds, job_id, JobState.COMPLETED, now),
    )
    return changed.rowcount == 1


def renew(database: sqlite3.Connection, job_id: str, worker: str, until: float) -> JobState | None:
    """Prolong a lease. Return the state of the job; None if the worker has lost it."""
    change = "UPDATE jobs SET leased_until = ? WHERE id = ? AND worker = ?"
    database.execute(change, (until, job_id, worker))
    return _leased_state(database, job_id, worker)


def release(database: sqlite3.Connection, job_id: str, worker: str) -> None:
    change = "UPDATE jobs SET worker = NULL, leased_until = 0 WHERE id = ? AND worker = ?"
    database.execute(change, (job_id, worker))


def update(
    database: sqlite3.Connection, job: QueuedJob[Any], worker: str, files: Iterable[FileRecord] = ()
) -> bool:
    """Store the state and the data of a job together with its files.

    Return False, and store nothing, if the worker has lost the job or the job was cancelled
    meanwhile.
    """
    with transaction(database):
        state = _leased_state(database, job.id, worker)
        is_cancelled = state is JobState.CANCELLING and JobState.CANCELLING not in job.times
        if state is None or is_cancelled:
            return False
        for record in files:
            add_file(database, record)
        _write(database, job)
    return True


def save_results(
    database: sqlite3.Connection,
    job_id: str,
    worker: str,
    texts: Mapping[int, str],
    is_error: bool = False,
) -> None:
    """Store results by their numbers, unless the worker has lost the job."""
    with transaction(database):
        if _leased_state(database, job_id, worker) is not None:
            rows = [(job_id, number, int(is_error), text) for number, text in texts.items()]
            database.executemany("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", rows)


def results(database: sqlite3.Connection, job_id: str, is_error: bool = False) -> dict[int, str]:
    """Return results in the order of their numbers."""
    query = "SELECT number, text FROM results WHERE job = ? AND is_error = ? ORDER BY number"
    return dict(tuple(row) for row in database.execute(query, (job_id, int(is_error))))


def result_numbers(database: sqlite3.Connection, job_id: str) -> set[int]:
    query = "SELECT number FROM results WHERE job = ?"
    return {number for [number] in database.execute(query, (job_id,))}


def add_file(database: sqlite3.Connection, record: FileRecord) -> None:
    values = tuple(asdict(record).values())
    database.execute("REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?)", values)


def find_file(
    database: sqlite3.Connection, file_id: str, owner: str, now: float
) -> FileRecord | None:
    query = "SELECT * FROM files WHERE id = ? AND owner = ? AND kept_until > ?"
    row = database.execute(query, (file_id, owner, now)).fetchone()
    return FileRecord(*row) if row else None


def files_of(database: sqlite3.Connection, owner: str, now: float) -> list[FileRecord]:
    """Return the files of an owner, the newest first."""
    query = (
        "SELECT * FROM files WHERE owner = ? AND kept_until > ? ORDER BY created_at DESC, id DESC"
    )
    return [FileRecord(*row) for row in database.execute(query, (owner, now))]


def remove(database: sqlite3.Connection, ids: Iterable[str]) -> None:
    """Delete jobs with their results, and files."""
    rows = [(id_,) for id_ in ids]
    with transaction(database):
        database.executemany("DELETE FROM results WHERE job = ?", rows)
        database.executemany("DELETE FROM jobs WHERE id = ?", rows)
        database.executemany("DELETE FROM files WHERE id = ?", rows)


def ids(database: sqlite3.Connection, kept_until: float | None = None) -> list[str]:
    """Return the ids of all jobs and files, or of those that are kept until a time before this."""
    queries = (
        f"SELECT id FROM {table} WHERE :until IS NULL OR kept_until < :until"
        for table in ("jobs", "files")
    )
    return [id_ for [id_] in database.execute(" UNION ".join(queries), {"until": kept_until})]


def _waiting(database: sqlite3.Connection, kind: str, now: float) -> str | None:
    marks = ", ".join("?" * len(OPEN))
    row = database.execute(
        f"SELECT id FROM jobs WHERE kind = ? AND state IN ({marks})"
        " AND (worker IS NULL OR leased_until < ?) ORDER BY created_at, id LIMIT 1",
        (kind, *OPEN, now),
    ).fetchone()
    return row["id"] if row else None


def _leased_state(database: sqlite3.Connection, job_id: str, worker: str) -> JobState | None:
    query = "SELECT state FROM jobs WHERE id = ? AND worker = ?"
    row = database.execute(query, (job_id, worker)).fetchone()
    return JobState(row["state"]) if row else None


def _write(database: sqlite3.Connection, job: QueuedJob[Any]) -> None:
    change = "UPDATE jobs SET state = ?, data = ?, times = ? WHERE id = ?"
    database.execute(change, (job.state, *_data_and_times(job), job.id))


def _data_and_times(job: QueuedJob[Any]) -> tuple[str, str]:
    """Return both as JSON. Fields that have their default are left out: so an older version, which
    knows fewer fields, can read the jobs that do not use new ones.
    """
    defaults = {field.name: field.default for field in fields(job.data)}
    changed = {name: value for name, value in asdict(job.data).items() if value != defaults[name]}
    return json.dumps(changed), json.dumps(job.times)


def _job(row: sqlite3.Row, data: type[Data]) -> QueuedJob[Data]:
    values = {field.name: row[field.name] for field in fields(QueuedJob)}
    values["data"] = data(**json.loads(row["data"]))
    return QueuedJob(
        **values | {"state": JobState(row["state"]), "times": json.loads(row["times"])}
    )
