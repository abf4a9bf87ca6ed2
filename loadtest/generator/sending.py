"""Sends one request over HTTP and records when its answer came.

An error is the outcome of its request: nothing raises, and nothing is sent again.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from yarl import URL

from loadtest.generator.protocols import (
    PROTOCOLS,
    AnswerError,
    Events,
    Output,
    count_usage,
    parse_event,
)
from loadtest.generator.texts import num_sentences
from loadtest.plan import LoadPlan
from loadtest.records import CANCELLED, OK, Request

REFUSED = "refused"
TIMEOUT = "timeout"
CONNECTION = "connection"
CUT_STREAM = "cut stream"
_REFUSALS = (429, 503)
_DETAIL_CHARACTERS = 200


@dataclass(slots=True)
class _Trace:
    """The state of a request."""

    sent: float
    status: int | None = None
    tokens: list[float] = field(default_factory=list)
    output: Output = field(default_factory=Output)
    outcome: str = OK
    detail: str = ""


class Sender:
    """Sends texts through one HTTP session. clock: returns seconds since the run began."""

    def __init__(
        self, plan: LoadPlan, session: aiohttp.ClientSession, clock: Callable[[], float]
    ) -> None:
        self._plan = plan
        self._session = session
        self._clock = clock
        self._protocol = PROTOCOLS[plan.work.protocol]
        self._url = URL(plan.url + self._protocol.path)

    async def send(self, number: int, text: str, intended: float | None = None) -> Request:
        """Send a text now and return the record of the request when it has ended in any way."""
        trace = _Trace(sent=self._clock())
        try:
            async with asyncio.timeout(self._plan.timeout_seconds):
                await self._exchange(number, text, trace)
        except AnswerError as error:
            trace.outcome, trace.detail = error.kind, str(error)
        except TimeoutError:
            trace.outcome = TIMEOUT
        except aiohttp.ClientPayloadError as error:
            trace.outcome, trace.detail = CUT_STREAM, str(error)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            trace.outcome, trace.detail = CONNECTION, str(error) or type(error).__name__
        except asyncio.CancelledError:
            trace.outcome, trace.detail = CANCELLED, "the run was ended"
        return self._record(number, text, intended, trace)

    async def _exchange(self, number: int, text: str, trace: _Trace) -> None:
        body = json.dumps(self._protocol.body(text, self._plan.work)).encode()
        headers = {"Content-Type": "application/json", "X-Request-Id": f"loadtest-{number}"}
        async with self._session.post(self._url, data=body, headers=headers) as response:
            trace.status = response.status
            if not response.ok:
                kind = REFUSED if response.status in _REFUSALS else f"HTTP {response.status}"
                raise AnswerError(kind, (await response.read()).decode(errors="replace").strip())
            if self._protocol.can_stream and self._plan.work.is_streamed:
                await self._read_stream(response, trace)
            else:
                trace.output = self._protocol.output(parse_event(await response.read()))

    async def _read_stream(self, response: aiohttp.ClientResponse, trace: _Trace) -> None:
        events = Events()
        async for data in response.content.iter_any():
            now = self._clock()
            for chunk in events.feed(data):
                if self._protocol.piece(chunk):
                    trace.tokens.append(now)
                count_usage(trace.output, chunk)
        if not events.is_done:
            raise AnswerError(CUT_STREAM, "the stream ended without [DONE]")

    def _record(self, number: int, text: str, intended: float | None, trace: _Trace) -> Request:
        end = self._clock()
        return Request(
            id=number,
            intended=_round_seconds(trace.sent if intended is None else intended),
            sent=_round_seconds(trace.sent),
            tokens=tuple(map(_round_seconds, trace.tokens)),
            end=_round_seconds(end),
            outcome=trace.outcome,
            status=trace.status,
            detail=trace.detail[:_DETAIL_CHARACTERS],
            sentences=num_sentences(text) if self._protocol.translates else 0,
            output_tokens=trace.output.output_tokens,
        )


def _round_seconds(seconds: float) -> float:
    return round(seconds, 6)


def open_session(plan: LoadPlan) -> aiohttp.ClientSession:
    """Open a session without limits of its own: the plan limits the load."""
    return aiohttp.ClientSession(
        plan.url,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Accept-Encoding": "identity", **plan.headers},
        cookie_jar=aiohttp.DummyCookieJar(),
    )
