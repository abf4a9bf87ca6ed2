"""Is a server that speaks every protocol, computes nothing, and takes known times for it.

It runs in a process of its own. /log says what it did and when, by the monotonic clock that all
processes of a machine share: what the load test measured can be held against it.
"""

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, cast

import httptools
import uvloop

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Holds latencies and shares of faults. Without any it answers at once and well.

    first_token_seconds: median of a log-normal distribution whose logarithm deviates by `spread`.
    token_seconds: between further tokens. Answers that are not streamed take as long as the whole
    stream would. key: the `Authorization` without which requests are refused.
    stall_at: number of the request at which the server stands still, connections and all, for
    `stall_seconds`. Faults befall none of the first `good_requests`.
    """

    first_token_seconds: float = 0.0
    spread: float = 0.0
    token_seconds: float = 0.0
    num_tokens: int = 16
    seed: int = 0
    key: str = ""
    stall_at: int | None = None
    stall_seconds: float = 2.0
    good_requests: int = 0
    refuse: float = 0.0
    fail: float = 0.0
    nonsense: float = 0.0
    late_error: float = 0.0
    cut: float = 0.0

    def draw(self, number: int) -> "Course":
        """Return what is to become of the request that is the so-many-th to come."""
        draws = random.Random((self.seed << 40) + number)
        factor = math.exp(self.spread * draws.gauss(0, 1))
        shares = [getattr(self, name) for name in FAULTS]
        names, weights = (GOOD, *FAULTS), (1 - sum(shares), *shares)
        fault = draws.choices(names, weights)[0] if number >= self.good_requests else GOOD
        return Course(self.first_token_seconds * factor, fault)


@dataclass(frozen=True, slots=True)
class Course:
    """Holds what becomes of one request."""

    first_token_seconds: float
    fault: str


class _Server:
    """Holds what all connections share."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.log: list[Entry] = []
        self.generated = 0
        self.loop = asyncio.get_running_loop()

    def admit(self, id_: str, key: str) -> tuple[Entry, Course]:
        if len(self.log) == self.behaviour.stall_at:
            self.loop.call_soon(time.sleep, self.behaviour.stall_seconds)
        course = self.behaviour.draw(len(self.log))
        if self.behaviour.key not in ("", key):
            course = Course(0.0, "refuse")
        entry = Entry(id_, time.monotonic(), course.first_token_seconds, course.fault)
        self.log.append(entry)
        return entry, course

    def metrics(self) -> str:
        return (
            "# TYPE vllm:generation_tokens_total counter\n"
            f'vllm:generation_tokens_total{{model_name="mock"}} {self.generated}\n'
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
        self._url, self._id, self._key, self._body = "", "", "", b""

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
        elif name.lower() == b"authorization":
            self._key = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._url == "/metrics":
            self._transport.write(whole(200, self._server.metrics()))
        elif self._url == "/log":
            log = [asdict(entry) for entry in self._server.log]
            self._transport.write(whole(200, log))
        else:
            self._answer()
        self._begin()

    def _answer(self) -> None:
        path = self._url
        fields = _fields(self._body)
        if path not in TEXT_FIELDS:
            self._transport.write(whole(404, {"error": "no such path"}))
        elif not isinstance(fields.get(TEXT_FIELDS[path]), str | list):
            self._transport.write(whole(400, {"error": "no text to work on"}))
        else:
            entry, course = self._server.admit(self._id, self._key)
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
        self._token = token(path) if self._is_streamed else b""
        self._num_sent = 0

    def begin(self) -> None:
        if self._is_streamed and self._fault not in ("refuse", "fail", "nonsense"):
            self._transport.write(stream_head(self._path))
            self._later(self._send_token)
            return
        behaviour = self._server.behaviour
        self._due += (behaviour.num_tokens - 1) * behaviour.token_seconds
        self._later(self._send_whole)

    def _send_whole(self) -> None:
        num_tokens = self._server.behaviour.num_tokens
        match self._fault:
            case "refuse":
                data = whole(429, {"error": "too many requests"})
            case "fail":
                data = whole(500, {"error": "the engine has stopped"})
            case "nonsense":
                data = whole(200, "<html>42</html>")
            case _:
                data = answer(self._path, num_tokens)
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
            self._end(late_error())
        elif self._fault == "cut":
            self._end(b"")
        else:
            self._end(stream_end(self._num_sent))

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


GOOD = "good"
FAULTS = ("refuse", "fail", "nonsense", "late_error", "cut")


_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many", 500: "Error"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
_WORD = " mot"
TEXT_FIELDS = {
    "/translate": "q",
    "/v2/translate": "text",
    "/v1/completions": "prompt",
    "/v1/chat/completions": "messages",
}


def whole(status: int, content: Any) -> bytes:
    """Return an answer: text as it is, anything else as JSON."""
    is_text = isinstance(content, str)
    body = content.encode() if is_text else json.dumps(content).encode()
    kind = "text/plain" if is_text else "application/json"
    head = f"HTTP/1.1 {status} {_REASONS[status]}\r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def answer(path: str, num_tokens: int) -> bytes:
    text = (_WORD * num_tokens).strip()
    usage = {"prompt_tokens": 5, "completion_tokens": num_tokens}
    contents: dict[str, Any] = {
        "/translate": {"translatedText": text},
        "/v2/translate": {"translations": [{"detected_source_language": "EN", "text": text}]},
        "/v1/completions": {"choices": [{"index": 0, "text": text}], "usage": usage},
        "/v1/chat/completions": {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}],
            "usage": usage,
        },
    }
    return whole(200, contents[path])


def stream_head(path: str) -> bytes:
    """Return the head, with what comes before the first text: a comment, and a chat's role."""
    start = b": ping\n\n"
    if "chat" in path:
        start += _event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    return _STREAM_HEAD + _chunked(start)


def token(path: str) -> bytes:
    choice = {"delta": {"content": _WORD}} if "chat" in path else {"text": _WORD}
    return _chunked(_event({"id": "mock", "choices": [{"index": 0, **choice}]}))


def stream_end(num_tokens: int) -> bytes:
    usage = {"prompt_tokens": 5, "completion_tokens": num_tokens}
    return _chunked(_event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n") + END


def late_error() -> bytes:
    return _chunked(_event({"error": {"message": "the engine has stopped"}})) + END


END = b"0\r\n\r\n"  # of a chunked body


def _event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
