"""What all stores of state write their queries for: a database of either kind.

Statements are in the SQL that SQLite (3.37 or newer) and PostgreSQL share, with `?` for a value:
`INSERT ... ON CONFLICT (...) DO ...`, `coalesce(sum(...), 0)`, `CAST(? AS TEXT) IS NULL`.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

Row = Mapping[str, Any]
Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


class Connection(ABC):
    """One connection. A statement outside of `transaction` is a transaction of its own.

    SKIP_LOCKED: ends a SELECT within a transaction that reserves the rows that it returns and
        leaves out those that another transaction has reserved; empty where a transaction locks the
        whole database.
    IS_LISTED: follows a column that must have one of the values of a list, which is given as the
        JSON of an array of texts.
    """

    SKIP_LOCKED: ClassVar[str]
    IS_LISTED: ClassVar[str]

    @abstractmethod
    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Return all rows of a SELECT, or those that a change returns with RETURNING."""

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Return how many rows the statement has changed."""

    @abstractmethod
    def execute_many(self, statement: str, rows: Iterable[Sequence[object]]) -> int:
        """Execute a statement once for each row of values; return how many rows have changed."""

    @abstractmethod
    def insert_rows(
        self, table: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Insert new rows, as many as there are at the highest speed."""

    @abstractmethod
    def analyze(self, *tables: str) -> None:
        """Bring up to date what fast plans for queries need after many rows have changed. It cannot
        be called within a transaction.
        """

    @abstractmethod
    def transaction(self, lock: str = "", is_durable: bool = True) -> AbstractContextManager[None]:
        """Run the block as one transaction, rolled back if it raises.

        lock: a name; of several transactions with the same name, in all processes, one runs at a
            time. What a transaction reads stays true until its end only under a lock.
        is_durable: False does not wait until the disk has it: a crash of the database's machine
            may undo the last of such transactions, whole.
        """

    @abstractmethod
    def time(self) -> float:
        """Return the time by the clock that all users of the database share, in seconds since
        1970.
        """

    @abstractmethod
    def create_tables(self, script: str) -> None:
        """Execute the statements of a schema, in SQLite's STRICT types."""

    @abstractmethod
    def continue_numbers(self, table: str, column: str) -> None:
        """Let the next row of a table, whose primary key is this column, have the number after the
        highest one: rows were inserted with their numbers.
        """

    def row(self, query: str, values: Sequence[object] = ()) -> Row | None:
        """Return the first row; None if there is none."""
        return next(iter(self.rows(query, values)), None)


class Database(ABC):
    """Runs functions whose first argument is a connection. All methods raise StorageError."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def run(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return `work(connection, *arguments)`. Cancelling does not stop it."""
        future = asyncio.wrap_future(self.start(work, *arguments, **options))
        future.add_done_callback(_retrieve_error)
        return await asyncio.shield(future)

    def start(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> "Future[Result]":
        """Start work without waiting for it."""
        return self._executor.submit(lambda: self.run_blocking(work, *arguments, **options))

    @abstractmethod
    def run_blocking(
        self,
        work: Callable[Concatenate[Connection, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """Return `work(connection, *arguments)`; this thread waits for it."""


def _retrieve_error(future: "asyncio.Future[Any]") -> None:
    """Retrieve the error of work whose caller was cancelled, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()
