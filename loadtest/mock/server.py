"""Is a server that speaks every protocol, computes nothing, and takes known times for it.

It runs in a process of its own. /log says what it did and when, by the monotonic clock that all
processes of a machine share: what the load test measured can be held against it.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import cast

import httptools
import uvloop

from loadtest.mock import answers
from loadtest.mock.behaviour import Behaviour, Course

_START_SECONDS = 30.0


@dataclass(slots=True)
class Entry:
    """Holds what the server did with one request, and when."""

    id: str
    received: float
    drawn_seconds: float
    fault: str
    first: float | None = None
    end: float | None = None
    was_hung_up: bool = False


class _Server:
    """Holds what all connections share."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.log: list[Entry] = []
        self.generated = 0
        self.loop = asyncio.get_running_loop()

    def admit(self, id_: str) -> tuple[Entry, Course]:
        if len(self.log) == self.behaviour.stall_at:
            self.loop.call_soon(time.sleep, self.behaviour.stall_seconds)
        course = self.behaviour.draw(len(self.log))
        entry = Entry(id_, time.monotonic(), course.first_token_seconds, course.fault)
        self.log.append(entry)
        return entry, course

    def metrics(self) -> str:
        labels = '{kind="generated",model="mock"}'
        return (
            "# TYPE attendant_tokens_total counter\n"
            f"attendant_tokens_total{labels} {self.generated}\n"
            "# TYPE attendant_requests_total counter\n"
            f"attendant_requests_total {len(self.log)}\n"
        )


class _Connection(asyncio.Protocol):
    """Reads requests and answers them, one after the other."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._entry: Entry | None = None
        self._begin()

    def _begin(self) -> None:
        self._url, self._id, self._body = "", "", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no common class

    def connection_lost(self, error: Exception | None) -> None:
        if self._entry is not None and self._entry.end is None:
            self._entry.was_hung_up = True

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._id = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url == "/metrics":
            self._transport.write(answers.whole(200, self._server.metrics()))
        elif self._url == "/log":
            log = [asdict(entry) for entry in self._server.log]
            self._transport.write(answers.whole(200, log))
        else:
            self._answer()
        self._begin()

    def _answer(self) -> None:
        path = self._url
        fields = _fields(self._body)
        if path not in answers.TEXT_FIELDS:
            self._transport.write(answers.whole(404, {"error": "no such path"}))
        elif not isinstance(fields.get(answers.TEXT_FIELDS[path]), str | list):
            self._transport.write(answers.whole(400, {"error": "no text to work on"}))
        else:
            entry, course = self._server.admit(self._id)
            self._entry = entry
            _Reply(self._server, self._transport, path, entry, course, fields).begin()


def _fields(body: bytes) -> dict[str, object]:
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


class _Reply:
    """Answers one request in its own time."""

    def __init__(
        self,
        server: _Server,
        transport: asyncio.Transport,
        path: str,
        entry: Entry,
        course: Course,
        fields: dict[str, object],
    ) -> None:
        self._server = server
        self._transport = transport
        self._path = path
        self._entry = entry
        self._fault = course.fault
        self._is_streamed = fields.get("stream") is True
        self._due = entry.received + course.first_token_seconds
        self._token = answers.token(path) if self._is_streamed else b""
        self._num_sent = 0

    def begin(self) -> None:
        if self._is_streamed and self._fault not in ("refuse", "fail", "nonsense"):
            self._transport.write(answers.stream_head(self._path))
            self._later(self._send_token)
            return
        behaviour = self._server.behaviour
        self._due += (behaviour.num_tokens - 1) * behaviour.token_seconds
        self._later(self._send_whole)

    def _send_whole(self) -> None:
        num_tokens = self._server.behaviour.num_tokens
        match self._fault:
            case "refuse":
                data = answers.whole(429, {"error": "too many requests"})
            case "fail":
                data = answers.whole(500, {"error": "the engine has stopped"})
            case "nonsense":
                data = answers.whole(200, "<html>42</html>")
            case _:
                data = answers.answer(self._path, num_tokens)
                self._server.generated += num_tokens
        if self._fault == "cut":
            data = data[:-10]
        self._entry.first = time.monotonic()
        self._end(data)

    def _send_token(self) -> None:
        if self._entry.was_hung_up:
            return
        self._transport.write(self._token)
        self._entry.first = self._entry.first or time.monotonic()
        self._num_sent += 1
        self._server.generated += 1
        self._due += self._server.behaviour.token_seconds
        if self._num_sent < self._server.behaviour.num_tokens:
            self._later(self._send_token)
        elif self._fault == "late_error":
            self._end(answers.late_error())
        elif self._fault == "cut":
            self._end(b"")
        else:
            self._end(answers.stream_end(self._num_sent))

    def _end(self, data: bytes) -> None:
        if not self._entry.was_hung_up:
            self._transport.write(data)
            self._entry.end = time.monotonic()
        if self._fault == "cut":
            self._transport.close()

    def _later(self, what: Callable[[], None]) -> None:
        """Call it when it is due; timers of the loop are good to a millisecond."""
        rest = self._due - time.monotonic()
        if rest > 0:
            self._server.loop.call_later(rest, what)
        else:
            self._server.loop.call_soon(what)


@contextmanager
def mock_server(behaviour: Behaviour) -> Iterator[str]:
    """Serve from a process of its own, on a free port of this machine; gives the URL."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(behaviour, theirs), daemon=True)
    process.start()
    try:
        if not ours.poll(_START_SECONDS):
            raise OSError("the mock server did not start")
        yield f"http://127.0.0.1:{ours.recv()}/"
    finally:
        process.terminate()
        process.join()


def _serve(behaviour: Behaviour, connection: Connection) -> None:
    uvloop.run(_listen(behaviour, connection))


async def _listen(behaviour: Behaviour, connection: Connection) -> None:
    state = _Server(behaviour)
    server = await state.loop.create_server(lambda: _Connection(state), "127.0.0.1", 0)
    connection.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()
