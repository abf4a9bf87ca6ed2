"""Clients of a soak: what they ask for, and how each request ended.

A request ends well, is refused (429 or 503, which say when to come again), breaks off because a
part of the server was killed, or is wrong: another status than it should have, other bytes than the
same request had before, or no end at all.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from loadtest.generator.texts import CORPORA
from tests.soak.documents import FORMATS

_REFUSED = (429, 502, 503)
_BROKEN = (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError)
_LONGEST = aiohttp.ClientTimeout(total=120)
_EN_FR = {"source": "en", "target": "fr"}
_OPEN = ("validating", "in_progress", "finalizing")
_NUM_TEXTS = 300  # of which each comes again and again


def _completion(prompt: str) -> dict[str, Any]:
    return {"model": "llama-en", "prompt": prompt, "max_tokens": 60, "temperature": 0}


class Wrong(Exception):
    """The server did what it should not."""


class Refused(Exception):
    """The server asked to come again."""


@dataclass
class Record:
    """How requests ended, by what they asked for. wrong: what was wrong, the first few.

    accepted: documents that are being translated; each must be fetched once.
    """

    ends: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    num_running: int = 0

    def same(self, request: str, answer: Any) -> None:
        """Raise Wrong if the request has had another answer before."""
        if self.answers.setdefault(request, answer) != answer:
            raise Wrong(f"{request}: {answer!r}, before {self.answers[request]!r}")


class Clients:
    """Asks for one thing after the other until the time is over. embedder: a model's name."""

    def __init__(self, url: str, session: aiohttp.ClientSession, record: Record, seed: int) -> None:
        self._url, self._session, self._record = url, session, record
        self._random = random.Random(seed)
        self._texts = CORPORA["mixed"]()[:_NUM_TEXTS]
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "translate": (8, self._translate),
            "translate, many": (2, self._translate_many),
            "translate, stream": (3, self._stream),
            "completion": (2, self._complete),
            "completion, cancelled": (2, self._cancel),
            "embeddings": (2, self._embed),
            "bad body": (2, self._bad),
            "document": (1, self._document),
            "batch": (1, self._batch),
        }

    async def run(self, until: float) -> None:
        names = [*self._kinds]
        weights = [weight for weight, _ in self._kinds.values()]
        while time.monotonic() < until:
            [name] = self._random.choices(names, weights)
            await self._one(name)
            await asyncio.sleep(self._random.expovariate(4))

    async def _one(self, name: str) -> None:
        record, started = self._record, time.monotonic()
        record.num_running += 1
        try:
            await self._kinds[name][1]()
            end = "well"
            record.seconds.append(time.monotonic() - started)
        except Refused:
            end = "refused"
            await asyncio.sleep(1)
        except TimeoutError:
            end = "wrong"
            record.wrong.append(f"{name}: no end in two minutes")
        except _BROKEN:
            end = "broken off"
        except Wrong as error:
            end = "wrong"
            record.wrong.append(f"{name}: {error}"[:500])
        finally:
            record.num_running -= 1
        record.ends[name, end] += 1

    async def _translate(self) -> None:
        text = self._random.choice(self._texts)
        answer = await self._post("translate", {"q": text, **_EN_FR})
        self._record.same(text, answer["translatedText"])

    async def _translate_many(self) -> None:
        texts = self._random.sample(self._texts, 30)
        answer = await self._post("translate", {"q": texts, **_EN_FR})
        for text, translated in zip(texts, answer["translatedText"], strict=True):
            self._record.same(text, translated)

    async def _stream(self) -> None:
        text = self._random.choice(self._texts)
        events = await self._events("translate", {"q": text, **_EN_FR})
        if not events or "translatedText" not in events[-1]:
            raise aiohttp.ClientPayloadError("the stream broke off")
        self._record.same(text, events[-1]["translatedText"])

    async def _complete(self) -> None:
        prompt = f"Number {self._random.randrange(50)}"
        answer = await self._post("v1/completions", _completion(prompt))
        self._record.same(prompt, answer["choices"][0]["text"])

    async def _cancel(self) -> None:
        body = {"model": "llama-en", "prompt": "It", "max_tokens": 400, "ignore_eos": True}
        async with self._session.post(
            f"{self._url}/v1/completions", json={**body, "stream": True}
        ) as response:
            self._check(response.status)
            await response.content.readline()

    async def _embed(self) -> None:
        texts = [f"text {self._random.randrange(100)}" for _ in range(3)]
        answer = await self._post("v1/embeddings", {"model": "embedder", "input": texts})
        for text, found in zip(texts, answer["data"], strict=True):
            self._record.same(f"embedding of {text}", found["embedding"])

    async def _bad(self) -> None:
        status, body = self._random.choice(
            [
                (400, b'{"q": "A dog'),
                (400, b"[]"),
                (404, b'{"q":"a","source":"en","target":"fr","model":"x"}'),
            ]
        )
        headers = {"Content-Type": "application/json"}
        async with self._session.post(
            f"{self._url}/translate", data=body, headers=headers
        ) as response:
            self._check(response.status, status)
            if "error" not in await response.json():
                raise Wrong("an error without a message")

    async def _document(self) -> None:
        """Once accepted, a document is waited for, whatever is killed, and fetched once."""
        lines = self._random.sample(self._texts, 40)
        extension, kind = self._random.choice([*FORMATS.items()])
        form = aiohttp.FormData({"target_lang": "FR", "source_lang": "EN"})
        form.add_field("file", kind.made(lines), filename=f"a.{extension}")
        async with self._session.post(f"{self._url}/v2/document", data=form) as response:
            self._check(response.status)
            handle = await response.json()
        path, key = f"v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
        while (status := await self._patiently(path, key))["status"] != "done":
            if status["status"] == "error":
                raise Wrong(str(status))
            await asyncio.sleep(0.5)
        async with self._session.post(f"{self._url}/{path}/result", json=key) as response:
            self._check(response.status)
            translated = kind.lines_of(await response.read())
        for text, line in zip(lines, translated, strict=True):
            self._record.same(text, line)

    async def _batch(self) -> None:
        """Once accepted, all lines of a batch are answered, as they are when asked alone."""
        prompts = [f"Number {each}" for each in self._random.sample(range(50), 8)]
        line = {"method": "POST", "url": "/v1/completions"}
        lines = [{**line, "custom_id": each, "body": _completion(each)} for each in prompts]
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", "\n".join(map(json.dumps, lines)), filename="in.jsonl")
        async with self._session.post(f"{self._url}/v1/files", data=form) as response:
            self._check(response.status)
            file = (await response.json())["id"]
        wanted = {"endpoint": "/v1/completions", "completion_window": "24h"}
        batch = await self._post("v1/batches", {"input_file_id": file, **wanted})
        path = f"v1/batches/{batch['id']}"
        while (batch := json.loads(await self._patiently(path)))["status"] in _OPEN:
            await asyncio.sleep(0.5)
        if batch["request_counts"] != {"total": 8, "completed": 8, "failed": 0}:
            raise Wrong(str(batch))
        output = await self._patiently(f"v1/files/{batch['output_file_id']}/content")
        answers = [json.loads(each) for each in output.splitlines()]
        for prompt, answer in zip(prompts, answers, strict=True):
            body = answer["response"]["body"]
            self._record.same(prompt, body["choices"][0]["text"])

    async def _patiently(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask until there is an answer: its JSON, or without a body its text."""
        while True:
            try:
                return await (self._get(path) if body is None else self._post(path, body))
            except (Refused, *_BROKEN):
                await asyncio.sleep(1)

    async def _post(self, path: str, body: dict[str, Any]) -> Any:
        async with self._session.post(
            f"{self._url}/{path}", json=body, timeout=_LONGEST
        ) as response:
            self._check(response.status)
            return await response.json()

    async def _get(self, path: str) -> str:
        async with self._session.get(f"{self._url}/{path}", timeout=_LONGEST) as response:
            self._check(response.status)
            return await response.text()

    async def _events(self, path: str, body: dict[str, Any]) -> list[Any]:
        async with self._session.post(
            f"{self._url}/{path}", json={**body, "stream": True}
        ) as response:
            self._check(response.status)
            lines = [line async for line in response.content]
        events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        if events and "error" in events[-1]:
            raise aiohttp.ClientPayloadError(str(events[-1]))
        return events

    def _check(self, status: int, expected: int = 200) -> None:
        if status in _REFUSED:
            raise Refused
        if status != expected:
            raise Wrong(f"status {status} for {expected}")
