"""Jobs that several servers share: each runs once, whoever dies, and whatever the database does."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Concatenate

import pytest

from serving.errors import StorageError
from serving.jobs import queue, table
from serving.jobs.batches import Batches, BatchRequest
from serving.jobs.documents import Documents, Handle
from serving.jobs.queue import Handler, JobQueue, Lease
from serving.jobs.table import OPEN, JobState, QueuedJob
from serving.server_config import DocumentLimits
from serving.storage.database import Arguments, Connection, Database, Result, Row
from serving.storage.files import FileStore
from serving.storage.opening import open_state
from serving.storage.schema import Schema
from serving.storage.state import State
from tests.postgresql import NEEDS_POSTGRESQL, PostgresqlProcess, running_postgresql
from tests.serving.documents.shouting import ShoutingTranslator
from tests.serving.jobs.test_batches import URL, jsonl
from tests.serving.jobs.test_documents import LINES, TEXT, documents_of, result, sent, until

NUM_JOBS = 200
NUM_SERVERS = 5
SHORT_TEXT = "\n".join(LINES[:40]).encode()


@dataclass(frozen=True)
class CountedData:
    KIND: ClassVar[str] = "counted"


class CountedJobs:
    """Runs jobs that do nothing, and notes which."""

    data = CountedData
    num_at_once = 4

    def __init__(self, state: State) -> None:
        self.queue, self.files = JobQueue(state), state.files("counted")
        self.ids: list[str] = []

    async def run(self, job: QueuedJob[CountedData], lease: Lease) -> None:
        self.ids.append(job.id)
        await lease.save({1: "done"})
        await lease.enter(job, JobState.COMPLETED)


async def test_each_job_runs_once_however_many_servers_take_jobs(
    state: State, state_place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_POLL_SECONDS", 0.05)
    jobs = [
        QueuedJob(f"{number}", "", CountedData(), float(number), 1e12) for number in range(NUM_JOBS)
    ]
    states = [open_state(state_place) for _ in range(NUM_SERVERS)]
    servers = [CountedJobs(state) for state in states]
    async with AsyncExitStack() as running, asyncio.timeout(100):
        for server in servers:
            await running.enter_async_context(server.queue.run_workers(server))
        for job, server in zip(jobs, servers * (NUM_JOBS // NUM_SERVERS), strict=True):
            await server.queue.add(job)
        while sum(len(server.ids) for server in servers) < NUM_JOBS:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)  # in which one could run again

    assert Counter(id_ for server in servers for id_ in server.ids) == {job.id: 1 for job in jobs}
    stored = await JobQueue(state).database.run(table.jobs_of, CountedData, "")
    assert [(job.state, job.num_results, job.worker) for job in stored] == [
        (JobState.COMPLETED, 1, None)
    ] * NUM_JOBS
    for opened in states:
        opened.close()


class Killed(BaseException):
    """The process is gone."""


class Life:
    """How many statements and changes of files a server makes before it is killed."""

    def __init__(self, num_left: int) -> None:
        self.num_left = num_left

    def spend(self) -> None:
        if self.num_left <= 0:
            raise Killed
        self.num_left -= 1


class MortalConnection(Connection):
    def __init__(self, connection: Connection, life: Life) -> None:
        self._connection, self._life = connection, life
        self.SKIP_LOCKED = connection.SKIP_LOCKED  # type: ignore[misc]
        self.IS_LISTED = connection.IS_LISTED  # type: ignore[misc]

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        self._life.spend()
        return self._connection.rows(query, values)

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        self._life.spend()
        return self._connection.execute(statement, values)

    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        self._life.spend()
        return self._connection.execute_many(statement, rows)

    def insert_rows(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        self._life.spend()
        self._connection.insert_rows(table, columns, rows)

    def analyze(self, *tables: str) -> None:
        self._connection.analyze(*tables)

    def continue_numbers(self, table: str, column: str) -> None:
        self._connection.continue_numbers(table, column)

    @contextmanager
    def transaction(self, lock: str = "", is_durable: bool = True) -> Iterator[None]:
        with self._connection.transaction(lock):
            yield
            self._life.spend()  # before it is committed

    def time(self) -> float:
        return self._connection.time()

    def create_tables(self, script: str) -> None:
        self._connection.create_tables(script)


class MortalDatabase(Database):
    def __init__(self, database: Database, life: Life) -> None:
        super().__init__(database._executor)
        self._database, self._life = database, life

    def run_blocking(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        return self._database.run_blocking(
            lambda connection: work(MortalConnection(connection, self._life), *arguments, **options)
        )


class MortalFiles(FileStore):
    def __init__(self, files: FileStore, life: Life) -> None:
        self._files, self._life = files, life

    @contextmanager
    def writing(self, owner: str, name: str = "") -> Iterator[Path]:
        with self._files.writing(owner, name) as path:
            yield path
            self._life.spend()
        self._life.spend()

    @contextmanager
    def reading(self, owner: str, name: str = "") -> Iterator[Path]:
        self._life.spend()
        with self._files.reading(owner, name) as path:
            yield path

    def names(self) -> Iterator[tuple[str, str]]:
        return self._files.names()

    def exists(self, owner: str) -> bool:
        return self._files.exists(owner)

    def remove(self, *owners: str) -> None:
        self._life.spend()
        self._files.remove(*owners)

    def remove_abandoned(self, owners: Iterable[str]) -> None:
        self._files.remove_abandoned(owners)

    def num_bytes(self) -> int:
        return self._files.num_bytes()


class MortalState(State):
    is_shared = True

    def __init__(self, state: State, life: Life) -> None:
        self.place, self._state, self._life = state.place, state, life

    def database(self, schema: Schema) -> Database:
        return MortalDatabase(self._state.database(schema), self._life)

    def files(self, name: str) -> FileStore:
        return MortalFiles(self._state.files(name), self._life)

    def check(self, schemas: Iterable[Schema] = ()) -> None:
        self._state.check(schemas)

    def is_reachable(self) -> bool:
        return self._state.is_reachable()

    def is_in_use(self) -> bool:
        return self._state.is_in_use()

    def close(self) -> None:
        self._state.close()


async def run_one(jobs: JobQueue, handler: Handler[Any]) -> bool:
    """Run a job to its end; return False if the server was killed."""
    try:
        assert await jobs._run_next(handler)
    except BaseExceptionGroup as errors:
        assert errors.split(Killed)[1] is None
        return False
    except Killed:
        return False
    return True


async def finish(jobs: JobQueue, handler: Handler[Any]) -> None:
    """Run all jobs, as another server does once their leases have run out."""
    await jobs.database.run(
        lambda connection: connection.execute("UPDATE jobs SET leased_until = 0")
    )
    while await jobs._run_next(handler):
        pass


async def test_a_server_killed_between_any_two_statements_leaves_a_document_to_another(
    state: State,
) -> None:
    first, second = ShoutingTranslator(), ShoutingTranslator()
    living = documents_of(state, second)
    num_statements, is_whole = 0, False
    while not is_whole:
        handle = await sent(living, SHORT_TEXT)
        second.jobs.clear()
        dying = documents_of(MortalState(state, Life(num_statements)), first)
        is_whole = await run_one(dying._queue, dying)
        done = await living._database.run(table.results, handle.id)
        await finish(living._queue, living)

        _, data = await result(living, handle)
        assert data == SHORT_TEXT.upper()
        lines = SHORT_TEXT.decode().splitlines()
        assert second.texts == [line for number, line in enumerate(lines) if number not in done]
        num_statements += 1
    assert num_statements > 20


async def test_a_server_killed_between_any_two_statements_leaves_a_batch_to_another(
    state: State,
) -> None:
    answered: list[str] = []

    async def answer(request: BatchRequest) -> tuple[int, Any]:
        answered.append(request.body["prompt"])
        return (400 if request.body["prompt"] == "line 3" else 200), {}

    living = Batches(JobQueue(state), answer)
    num_statements, is_whole = 0, False
    while not is_whole:
        file = await living.add_file("ann", "in.jsonl", jsonl(6))
        batch = await living.create("ann", URL, file.id, {})
        dying = Batches(JobQueue(MortalState(state, Life(num_statements))), answer)
        is_whole = await run_one(dying._queue, dying)
        num_done = (await living.batch("ann", batch.id)).num_results
        answered.clear()
        await finish(living._queue, living)

        batch = await living.batch("ann", batch.id)
        assert batch.state is JobState.COMPLETED
        assert (batch.num_results, batch.num_errors) == (6, 1)
        assert len(answered) == 6 - num_done
        assert batch.data.output_file is not None
        with await living.open_file("ann", batch.data.output_file) as output:
            assert len(output.readlines()) == 5
        num_statements += 1
    assert num_statements > 40


async def test_an_expired_batch_stays_expired_whenever_its_server_is_killed(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.jobs.batches._WINDOW_SECONDS", -1)
    monkeypatch.setattr(queue, "_RENEWAL_SECONDS", 0.01)

    async def answer(_: BatchRequest) -> tuple[int, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    living = Batches(JobQueue(state), answer)
    num_statements, is_whole = 0, False
    while not is_whole:
        file = await living.add_file("ann", "in.jsonl", jsonl(2))
        batch = await living.create("ann", URL, file.id, {})
        dying = Batches(JobQueue(MortalState(state, Life(num_statements))), answer)
        is_whole = await run_one(dying._queue, dying)
        await finish(living._queue, living)

        batch = await living.batch("ann", batch.id)
        assert (batch.state, batch.num_errors) == (JobState.EXPIRED, 2)
        num_statements += 1


@pytest.fixture
def database_server() -> Iterator[PostgresqlProcess]:
    with running_postgresql() as server:
        yield server


@NEEDS_POSTGRESQL
async def test_a_database_that_is_away_for_less_than_a_lease_costs_no_work(
    database_server: PostgresqlProcess,
) -> None:
    state = open_state(database_server.create_database())
    translator = ShoutingTranslator()
    translator.gate, translator.lets_pass = asyncio.Event(), 3
    documents = documents_of(state, translator)
    handle = await sent(documents)
    async with documents._queue.run_workers(documents), asyncio.timeout(60):
        await until_saved(documents, handle, 3 * 16)
        await asyncio.to_thread(database_server.stop)
        translator.gate.set()
        await until(lambda: len(translator.texts) > 3 * 16)
        await asyncio.sleep(3)
        await asyncio.to_thread(database_server.start)
        await until_ended(documents, handle)
        _, data = await result(documents, handle)

    assert data == TEXT.upper()
    assert Counter(translator.texts) == Counter(LINES)
    state.close()


@NEEDS_POSTGRESQL
async def test_a_database_that_is_away_for_longer_than_a_lease_costs_what_was_not_stored(
    database_server: PostgresqlProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(queue, "_POLL_SECONDS", 0.2)
    url = database_server.create_database()
    states = [open_state(url) for _ in range(2)]
    translators = [ShoutingTranslator() for _ in states]
    servers = [
        Documents(JobQueue(state), translator.catalog, DocumentLimits())
        for state, translator in zip(states, translators, strict=True)
    ]
    gate = asyncio.Event()
    for translator in translators:
        translator.gate, translator.lets_pass = gate, 3
    handle = await sent(servers[0])
    async with (
        servers[0]._queue.run_workers(servers[0]),
        servers[1]._queue.run_workers(servers[1]),
        asyncio.timeout(60),
    ):
        await until_saved(servers[0], handle, 3 * 16)
        await asyncio.to_thread(database_server.stop)
        gate.set()
        await asyncio.sleep(5)
        await asyncio.to_thread(database_server.start)
        await until_ended(servers[0], handle)
        _, data = await result(servers[0], handle)

    assert data == TEXT.upper()
    times = Counter(text for translator in translators for text in translator.texts)
    assert all(times[line] == 1 for line in LINES[: 3 * 16]), "what is stored is not repeated"
    for state in states:
        state.close()


async def until_saved(documents: Documents, handle: Handle, num_results: int) -> None:
    while (await documents.job(handle, "ann")).num_results < num_results:
        await asyncio.sleep(0.02)


async def until_ended(documents: Documents, handle: Handle) -> None:
    while True:
        with suppress(StorageError):  # it may still be starting
            if (await documents.job(handle, "ann")).state not in OPEN:
                return
        await asyncio.sleep(0.1)
