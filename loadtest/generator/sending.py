"""Sends one request over HTTP and writes down when what happened to it.

Whatever goes wrong with a request is its outcome; nothing raises, and nothing is tried again.
"""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from loadtest.generator.items import Item, broken
from loadtest.generator.protocols import (
    PROTOCOLS,
    AnswerError,
    ApiProtocol,
    Events,
    Output,
    count_usage,
    parsed,
)
from loadtest.generator.texts import num_sentences, num_words
from loadtest.plan import Plan
from loadtest.records import CANCELLED, OK, Request

REFUSED = "refused"
TIMEOUT = "timeout"
CONNECTION = "connection"
CUT_STREAM = "cut stream"
ACCEPTED_BAD = "bad request accepted"
_REFUSALS = (429, 503)
_DETAIL_CHARACTERS = 200
_FIRST_GUESS_SECONDS = 0.1  # of how long an answer takes, until there is one
_WEIGHT_OF_NEWEST = 0.05  # in the mean of how long answers take


@dataclass(slots=True)
class _Trace:
    """Gathers what becomes of one request."""

    sent: float
    status: int | None = None
    first_byte: float | None = None
    tokens: list[float] = field(default_factory=list)
    output: Output = field(default_factory=Output)
    outcome: str = OK
    detail: str = ""
    is_refused_in_json: bool = False


class Sender:
    """Sends items through one HTTP session. `clock` gives seconds since the run began."""

    def __init__(
        self,
        plan: Plan,
        session: aiohttp.ClientSession,
        clock: Callable[[], float],
        worker: int = 0,
    ) -> None:
        self._plan = plan
        self._session = session
        self._clock = clock
        self._worker = worker
        self._urls = {name: URL(plan.url + protocol.path) for name, protocol in PROTOCOLS.items()}
        self._mean_seconds = _FIRST_GUESS_SECONDS

    async def send(
        self, item: Item, intended: float | None = None, user: int | None = None
    ) -> Request:
        """Send an item now and return its record once it has ended, in whatever way."""
        trace = _Trace(sent=self._clock())
        timeout = self._plan.timeout_seconds
        if item.hang_up is not None:
            timeout = item.hang_up * self._mean_seconds
        try:
            async with asyncio.timeout(timeout):
                await self._exchange(item, trace)
        except AnswerError as error:
            trace.outcome, trace.detail = error.kind, str(error)
        except TimeoutError:
            trace.outcome = TIMEOUT if item.hang_up is None else CANCELLED
        except aiohttp.ClientPayloadError as error:
            trace.outcome, trace.detail = CUT_STREAM, str(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            trace.outcome, trace.detail = CONNECTION, str(error) or type(error).__name__
        except asyncio.CancelledError:
            trace.outcome, trace.detail = CANCELLED, "the run was ended"
        return self._record(item, intended, user, trace)

    async def _exchange(self, item: Item, trace: _Trace) -> None:
        protocol = PROTOCOLS[item.protocol]
        fields = protocol.body(item, self._plan.work)
        body = broken(fields, item.fault) if item.fault else json.dumps(fields).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": f"loadtest-{item.id}"}
        url = self._urls[item.protocol]
        async with self._session.post(url, data=body, headers=headers) as response:
            trace.status = response.status
            if not response.ok:
                await _refuse(response, trace)
            if item.fault is not None:
                raise AnswerError(ACCEPTED_BAD, item.fault)
            if protocol.can_stream and self._plan.work.is_streamed:
                await self._read_stream(protocol, response, trace)
            else:
                await self._read_whole(protocol, response, trace)

    async def _read_whole(
        self, protocol: ApiProtocol, response: aiohttp.ClientResponse, trace: _Trace
    ) -> None:
        parts = []
        async for part in response.content.iter_any():
            if trace.first_byte is None:
                trace.first_byte = self._clock()
            parts.append(part)
        trace.output = protocol.output(parsed(b"".join(parts)))

    async def _read_stream(
        self, protocol: ApiProtocol, response: aiohttp.ClientResponse, trace: _Trace
    ) -> None:
        events = Events()
        pieces = []
        try:
            async for data in response.content.iter_any():
                now = self._clock()
                for chunk in events.feed(data):
                    if piece := protocol.piece(chunk):
                        trace.tokens.append(now)
                        pieces.append(piece)
                    count_usage(trace.output, chunk)
        finally:
            trace.first_byte = trace.tokens[0] if trace.tokens else None
            trace.output.text = "".join(pieces)
        if not events.is_done:
            raise AnswerError(CUT_STREAM, "the stream ended without [DONE]")

    def _record(
        self, item: Item, intended: float | None, user: int | None, trace: _Trace
    ) -> Request:
        end = self._clock()
        if trace.outcome == OK:
            self._mean_seconds += _WEIGHT_OF_NEWEST * (end - trace.sent - self._mean_seconds)
        asked, output = item.whole_text, trace.output
        return Request(
            id=item.id,
            worker=self._worker,
            user=user,
            kind=item.kind,
            protocol=item.protocol,
            model=item.model,
            intended=_rounded(trace.sent if intended is None else intended),
            sent=_rounded(trace.sent),
            first_byte=None if trace.first_byte is None else _rounded(trace.first_byte),
            tokens=tuple(map(_rounded, trace.tokens)),
            end=_rounded(end),
            outcome=trace.outcome,
            status=trace.status,
            detail=trace.detail[:_DETAIL_CHARACTERS],
            input_characters=len(asked),
            input_words=num_words(asked),
            output_characters=len(output.text),
            output_words=num_words(output.text),
            sentences=num_sentences(asked) if PROTOCOLS[item.protocol].translates else 0,
            output_tokens=output.output_tokens,
            prompt_tokens=output.prompt_tokens,
            is_expected_error=item.fault is not None and trace.is_refused_in_json,
            text=item.text if self._plan.records_texts else None,
        )


def _rounded(seconds: float) -> float:
    return round(seconds, 6)


async def _refuse(response: aiohttp.ClientResponse, trace: _Trace) -> None:
    """Raise AnswerError for a status that is not good, with what the server says to it."""
    body = await response.read()
    if response.status < 500 and response.status not in _REFUSALS:
        with suppress(AnswerError):
            trace.is_refused_in_json = bool(parsed(body))
    kind = REFUSED if response.status in _REFUSALS else f"HTTP {response.status}"
    raise AnswerError(kind, body.decode(errors="replace").strip())


def open_session(url: str) -> aiohttp.ClientSession:
    """Open a session without limits of its own: the load is the plan's to limit."""
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Accept-Encoding": "identity"},
        cookie_jar=aiohttp.DummyCookieJar(),
    )
