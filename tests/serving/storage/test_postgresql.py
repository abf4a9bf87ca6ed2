"""PostgreSQL that is away, full, foreign or wrongly named: one sentence each, and no password."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.errors import StorageError
from serving.storage.opening import open_state
from tests.postgresql import NEEDS_POSTGRESQL, PostgresqlProcess, running_postgresql
from tests.serving.storage.test_state import COUNTS, add, counts

pytestmark = NEEDS_POSTGRESQL


def problem(url: str) -> str:
    """Return why the state at a URL cannot be used."""
    state = open_state(url)
    try:
        with pytest.raises(StorageError) as caught:
            state.check()
    finally:
        state.close()
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def check(url: str) -> None:
    state = open_state(url)
    try:
        state.check()
    finally:
        state.close()


@pytest.mark.parametrize(
    "url", ["postgresql://", "postgres://u:hunter2@[::1/db", "postgresql://u:hunter2%zz@h/db"]
)
def test_a_url_that_is_none_is_refused_without_its_password(url: str) -> None:
    if url == "postgresql://":
        open_state(url)  # libpq's own environment variables may say the rest
        return
    with pytest.raises(StorageError, match="is none; it is like postgresql://USER:") as caught:
        open_state(url)
    assert "hunter2" not in str(caught.value)


def test_a_host_that_is_not_there_is_named() -> None:
    started = time.monotonic()
    text = problem("postgresql://u:hunter2@127.0.0.1:1/db")
    assert text.startswith("postgresql://u@127.0.0.1:1/db: ")
    assert "Connection refused" in text
    assert time.monotonic() - started < 20


def test_a_database_or_user_that_is_not_there_is_named(
    postgresql_server: PostgresqlProcess,
) -> None:
    assert 'database "nothing" does not exist' in problem(postgresql_server.url("nothing"))
    nobody = postgresql_server.url(user="nobody", password="hunter2")
    assert 'role "nobody" does not exist' in problem(nobody)


def test_a_user_without_rights_is_told_which(postgresql_server: PostgresqlProcess) -> None:
    url = postgresql_server.create_database()
    name = url.partition("///")[2].partition("?")[0]
    postgresql_server.execute(f"CREATE ROLE guest_{name} LOGIN")
    guest = postgresql_server.url(name, user=f"guest_{name}")
    assert f"permission denied for database {name}" in problem(guest)

    check(url)  # now the tables are somebody else's
    assert "its schema attendant belongs to another user" in problem(guest)


def test_a_schema_of_something_else_is_left_alone(postgresql_server: PostgresqlProcess) -> None:
    url = postgresql_server.create_database()
    name = url.partition("///")[2].partition("?")[0]
    postgresql_server.execute("CREATE SCHEMA attendant; CREATE TABLE attendant.jobs ()", name)
    assert "its schema attendant has tables of something else: jobs" in problem(url)


def test_other_tables_of_the_database_are_not_touched(
    postgresql_server: PostgresqlProcess,
) -> None:
    url = postgresql_server.create_database()
    name = url.partition("///")[2].partition("?")[0]
    postgresql_server.execute("CREATE TABLE public.counts (other INT)", name)
    state = open_state(url)
    state.database(COUNTS).run_blocking(add, "a", 1)
    assert state.database(COUNTS).run_blocking(counts) == {"a": 1}
    state.close()


def test_a_database_that_cannot_store_all_texts_is_refused(
    postgresql_server: PostgresqlProcess,
) -> None:
    postgresql_server.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    assert problem(postgresql_server.url("latin")).endswith(
        "its encoding is LATIN1; make one with UTF8"
    )


def test_a_database_that_can_only_be_read_is_refused(
    postgresql_server: PostgresqlProcess,
) -> None:
    url = postgresql_server.create_database()
    name = url.partition("///")[2].partition("?")[0]
    postgresql_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "read-only transaction" in problem(url)


def test_one_that_stops_is_noticed_at_once_and_used_again_once_it_is_back() -> None:
    with running_postgresql() as server:
        state = open_state(server.create_database())
        database = state.database(COUNTS)
        database.run_blocking(add, "a", 1)

        server.stop()
        started = time.monotonic()
        with ThreadPoolExecutor(20) as pool:  # as many as wait would wait for one another
            errors = list(pool.map(lambda _: error_of(database.run_blocking), range(60)))
        assert time.monotonic() - started < 15
        assert all("postgresql://attendant@" in error for error in errors)

        server.start()
        deadline = time.monotonic() + 20
        while error_of(database.run_blocking) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert database.run_blocking(counts) == {"a": 1}
        state.close()


@pytest.mark.full
def test_one_that_hangs_is_noticed_and_used_again_once_it_goes_on() -> None:
    with running_postgresql() as server:
        state = open_state(server.create_database())
        database = state.database(COUNTS)
        database.run_blocking(add, "a", 1)
        statement = database.start(lambda connection: connection.rows("SELECT pg_sleep(1)"))
        time.sleep(0.2)

        server.pause()
        try:
            started = time.monotonic()
            with ThreadPoolExecutor(20) as pool:
                errors = list(pool.map(lambda _: error_of(database.run_blocking), range(60)))
            assert time.monotonic() - started < 15
            assert all(errors)
            assert "the server does not answer" in str(statement.exception())
        finally:
            server.resume()
        deadline = time.monotonic() + 20
        while error_of(database.run_blocking) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert database.run_blocking(counts) == {"a": 1}
        state.close()


def test_a_slow_statement_of_a_server_that_answers_goes_on(database_url: str) -> None:
    state = open_state(database_url)
    database = state.database(COUNTS)
    database.run_blocking(lambda connection: connection.rows("SELECT pg_sleep(4)"))
    state.close()


def error_of(run: Callable[..., object]) -> str:
    try:
        run(counts)
    except StorageError as error:
        return str(error)
    return ""


def test_a_server_without_free_connections_is_told() -> None:
    import psycopg

    options = ("-c", "max_connections=4", "-c", "superuser_reserved_connections=0")
    with running_postgresql(*options) as server:
        url = server.create_database()
        others = [psycopg.connect(url) for _ in range(4)]
        assert "too many clients already" in problem(url)
        for other in others:
            other.close()
        check(url)
