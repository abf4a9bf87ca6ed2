"""Clients that never stop, and what they have been answered."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

TEXTS = [f"A dog runs to house number {number}." for number in range(20)]
EN_FR = {"source": "en", "target": "fr"}
NUM_LINES = 30
PATIENCE_SECONDS = 90.0  # more than a lease of a worker that was killed
_NUM_BYTES = 50_000
_PAUSE_SECONDS = {"translate": 0.02, "glossaries": 0.1, "document": 1.0, "file": 0.3}


@dataclass(frozen=True)
class Answer:
    """request: what was asked for. status: 0 where the connection broke."""

    request: str
    begun: float
    seconds: float
    status: int
    retry_after: str | None
    text: str


@dataclass
class Document:
    """A document that was accepted."""

    id: str
    key: str
    num_lines: int


@dataclass
class Clients:
    """Clients of the servers behind one URL. Each sends one request after the other.

    key: an API key that they show. documents, files: those that were accepted, files by their ids.
    """

    url: str
    key: str
    answers: list[Answer] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._requests: dict[str, Callable[[int], httpx.Response]] = {
            "translate": self._translate,
            "glossaries": lambda _: self.send("GET", "/v3/glossaries"),
            "document": lambda _: self.send_document(),
            "file": lambda _: self._send_file(),
        }

    @contextmanager
    def running(self, *requests: str) -> Iterator[None]:
        """Run a client for each of these kinds of requests while the block runs."""
        self._is_over = False
        threads = [threading.Thread(target=self._repeat, args=(name,)) for name in requests]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            for thread in threads:
                thread.join()

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        if path.startswith(("/v2", "/v3")):
            headers = {"Authorization": f"DeepL-Auth-Key {self.key}"}
        # Not to verify certificates spares the time to load them, for each request.
        return httpx.request(
            method, self.url + path, headers=headers, timeout=60, verify=False, **options
        )

    def is_answered(self) -> bool:
        return self.send("GET", "/ready").is_success

    def send_document(self, num_lines: int = NUM_LINES) -> httpx.Response:
        text = "\n".join(TEXTS[number % len(TEXTS)] for number in range(num_lines))
        answer = self.send(
            *("POST", "/v2/document"),
            files={"file": ("a.txt", text.encode())},
            data={"source_lang": "EN", "target_lang": "FR"},
        )
        if answer.status_code == 200:
            handle = answer.json()
            document = Document(handle["document_id"], handle["document_key"], num_lines)
            self.documents.append(document)
        return answer

    def fetch_documents(self) -> set[str]:
        """Fetch all documents that were accepted, once each, and return their different lines."""
        lines = set()
        for document in self.documents:
            translated = self._fetch(document).splitlines()
            assert len(translated) == document.num_lines
            lines |= {(number % len(TEXTS), text) for number, text in enumerate(translated)}
        assert len(lines) == len({number for number, _ in lines}), "two texts of one line"
        self.documents.clear()
        return {text for _, text in lines}

    def fetch_files(self) -> None:
        """Check that all files that were accepted are there, whole."""
        for identity, data in self.files.items():
            assert self.send("GET", f"/v1/files/{identity}/content").content == data
        self.files.clear()

    def answers_of(self, request: str, since: float = 0.0) -> list[Answer]:
        return [
            answer for answer in self.answers if answer.request == request and answer.begun >= since
        ]

    def _repeat(self, name: str) -> None:
        number = 0
        while not self._is_over:
            number += 1
            begun = time.monotonic()
            try:
                answer = self._requests[name](number)
                status, retry_after = answer.status_code, answer.headers.get("retry-after")
                text = answer.text
            except httpx.HTTPError as error:
                status, retry_after, text = 0, None, repr(error)
            seconds = time.monotonic() - begun
            self.answers.append(Answer(name, begun, seconds, status, retry_after, text))
            time.sleep(_PAUSE_SECONDS[name])

    def _translate(self, number: int) -> httpx.Response:
        text = TEXTS[number % len(TEXTS)]
        return self.send("POST", "/translate", json={"q": text, **EN_FR})

    def _send_file(self) -> httpx.Response:
        data = os.urandom(_NUM_BYTES)
        files = {"file": ("in.jsonl", data)}
        answer = self.send("POST", "/v1/files", files=files, data={"purpose": "batch"})
        if answer.status_code == 200:
            self.files[answer.json()["id"]] = data
        return answer

    def _fetch(self, document: Document) -> str:
        """Return a translated document, whatever happens to servers meanwhile."""
        path, key = f"/v2/document/{document.id}", {"document_key": document.key}
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (status := self._ask(path, key).json())["status"] != "done":
            assert status["status"] != "error", status
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        text = self._ask(f"{path}/result", key).text
        self._ask(path, key, expected=404)
        return text

    def _ask(self, path: str, body: dict[str, str], expected: int = 200) -> httpx.Response:
        """Return the answer with the expected status, after any that say to try again later."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            answer = self.send("POST", path, data=body)
            if answer.status_code == expected:
                return answer
            assert answer.status_code in (502, 503), (answer.status_code, answer.text)
            assert time.monotonic() < deadline, answer.text
            time.sleep(0.2)


def statuses(answers: Sequence[Answer]) -> set[int]:
    return {answer.status for answer in answers}


def prompts_batch(num_lines: int) -> bytes:
    """Return a batch's file of translations, in OpenAI's protocol."""
    lines = [
        {
            "custom_id": str(number),
            "method": "POST",
            "url": "/v1/completions",
            "body": {"model": "translator", "prompt": TEXTS[number % len(TEXTS)]},
        }
        for number in range(num_lines)
    ]
    return "\n".join(map(json.dumps, lines)).encode()
