"""Connections to PostgreSQL that end when the server hangs or is cut off."""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

# A statement that has had no answer for so long, of a server that says nothing to a new connection
# either, will have none. A slow one of a server that answers goes on.
_SILENCE_SECONDS = 1.0
_CONNECT_SECONDS = 2  # libpq's shortest timeout

Result = TypeVar("Result")


class ServerIsSilent(psycopg.OperationalError):
    pass


class WatchedConnection(psycopg.Connection[Any]):
    """Raises ServerIsSilent where libpq would wait for ever: a paused machine still acknowledges
    what it is sent, so that no timeout of TCP ends the connection.
    """

    def wait(
        self,
        gen: Generator[Any, Any, Result],
        interval: float = 0.1,
        timeout: float | None = None,
    ) -> Result:
        return super().wait(self._watch(gen), interval, timeout)

    def _watch(self, exchange: Generator[Any, Any, Result]) -> Generator[Any, Any, Result]:
        """Yield what an exchange with the server waits for, and send it what has come: nothing
        after each interval.
        """
        quiet_since = time.monotonic()
        try:
            awaited = next(exchange)
            while True:
                readiness = yield awaited
                if readiness:
                    quiet_since = time.monotonic()
                elif time.monotonic() - quiet_since > _SILENCE_SECONDS:
                    self._check_server()
                    quiet_since = time.monotonic()
                awaited = exchange.send(readiness)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _check_server(self) -> None:
        """Close the connection and raise ServerIsSilent if its server says nothing to another one.
        That it refuses the other one is an answer.
        """
        parameters: dict[str, Any] = self.info.get_parameters()
        parameters |= {"host": self.info.host, "port": self.info.port}
        parameters["connect_timeout"] = _CONNECT_SECONDS
        try:
            psycopg.connect(**parameters).close()  # PQping would hold the lock of the interpreter
        except psycopg.errors.ConnectionTimeout:
            self.pgconn.finish()
            raise ServerIsSilent("the server does not answer") from None
        except psycopg.OperationalError:
            pass
