"""Connections to PostgreSQL that end when the server hangs or is cut off."""

import time
from collections.abc import Generator
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping

# A statement that has had no answer for so long, of a server that takes no other connection either
# (libpq's shortest timeout is 2 s), will have none. A slow one of a server that answers goes on.
_SILENCE_SECONDS = 1.0
_PING_SECONDS = 2

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
                    self._ping()
                    quiet_since = time.monotonic()
                awaited = exchange.send(readiness)
        except StopIteration as end:
            result: Result = end.value
            return result

    def _ping(self) -> None:
        """Close the connection and raise ServerIsSilent if its server takes no other one."""
        parameters = self.info.get_parameters()
        parameters |= {"host": self.info.host, "port": str(self.info.port)}
        parameters["connect_timeout"] = str(_PING_SECONDS)
        if PGconn.ping(make_conninfo(**parameters).encode()) == Ping.NO_RESPONSE:
            self.pgconn.finish()
            raise ServerIsSilent("the server does not answer")
