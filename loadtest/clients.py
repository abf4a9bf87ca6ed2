"""Speaks two protocols: LibreTranslate's /translate and OpenAI's streamed completions.

A client sends one text and says what came back and when; it neither repeats nor paces requests.
"""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

TOKENS_METRIC = "attendant_tokens"  # a family's name stands without the _total of its samples


class AnswerError(Exception):
    """Says why a request got no usable answer; `kind` groups errors of a sort in the report."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds what one request brought. `first_token` is a `time.perf_counter` reading."""

    first_token: float | None = None
    sentences: int = 0
    tokens: int | None = None


class Client(Protocol):
    async def send(self, text: str) -> Answer:
        """Ask once. Raises AnswerError where no usable answer comes."""
        ...


class TranslateClient:
    """Asks for one sentence at a time; the answer is whole: there is no first token to time."""

    def __init__(
        self, session: aiohttp.ClientSession, source: str, target: str, model: str | None
    ) -> None:
        self._session = session
        self._body = {"source": source, "target": target, "format": "text"}
        if model is not None:
            self._body["model"] = model

    async def send(self, text: str) -> Answer:
        async with _post(self._session, "translate", {"q": text, **self._body}) as response:
            answer = _parsed(await response.text())
        if not isinstance(answer.get("translatedText"), str):
            raise AnswerError("bad answer", "no translatedText in the answer")
        return Answer(sentences=1)


class CompletionsClient:
    """Asks for greedy streamed completions; the usage that ends a stream counts its tokens."""

    def __init__(self, session: aiohttp.ClientSession, model: str, max_tokens: int) -> None:
        self._session = session
        self._body = {
            "model": model,
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    async def send(self, text: str) -> Answer:
        first_token, tokens = None, None
        body = {"prompt": text, **self._body}
        async with _post(self._session, "v1/completions", body) as response:
            async for chunk in _events(response):
                if first_token is None and chunk.get("choices"):
                    first_token = time.perf_counter()
                if usage := chunk.get("usage"):
                    tokens = usage["completion_tokens"]
        return Answer(first_token, tokens=tokens)


async def generated_tokens(session: aiohttp.ClientSession, model: str | None) -> float | None:
    """Return the server's own count of generated tokens so far; None where it has none."""
    try:
        async with session.get("metrics") as response:
            text = await response.text() if response.ok else ""
        samples = [
            sample
            for family in text_string_to_metric_families(text)
            if family.name == TOKENS_METRIC
            for sample in family.samples
            if sample.name == f"{TOKENS_METRIC}_total" and sample.labels.get("kind") == "generated"
        ]
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return None
    counts = [s.value for s in samples if model is None or s.labels.get("model") == model]
    return sum(counts) if counts else None


@asynccontextmanager
async def _post(
    session: aiohttp.ClientSession, path: str, body: dict[str, Any]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Yield an answer with a good status; all that can go wrong becomes AnswerError."""
    try:
        async with session.post(path, json=body) as response:
            if not response.ok:
                raise AnswerError(f"HTTP {response.status}", (await response.text())[:300].strip())
            yield response
    except TimeoutError as error:
        raise AnswerError("timeout", f"no whole answer within {session.timeout.total} s") from error
    except aiohttp.ClientError as error:
        raise AnswerError("connection", str(error) or type(error).__name__) from error


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON chunks of a server-sent event stream; a late error or missing end raises."""
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        chunk = _parsed(data)
        if error := chunk.get("error"):
            raise AnswerError("error in stream", str(error))
        yield chunk
    raise AnswerError("cut stream", "the stream ended without [DONE]")


def _parsed(data: str | bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise AnswerError("bad answer", f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise AnswerError("bad answer", "not a JSON object")
    return value
