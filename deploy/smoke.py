"""Tries a running server as its first client would, with the models that it lists."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_TIMEOUT_SECONDS = 60.0
_TEXT = "Good morning."


class RequestFailed(Exception):
    """Raised when a server answers with an error, or not at all."""


def request(url: str, body: Any = None, method: str | None = None, token: str | None = None) -> str:
    """Return the text of an answer. A body is sent as JSON. Raise RequestFailed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        raise RequestFailed(f"{error.code}: {text[:500]}") from None
    except (OSError, ValueError) as error:  # an URL that is none is a ValueError
        raise RequestFailed(str(getattr(error, "reason", error))) from None


@dataclass(frozen=True)
class Check:
    """The result of one check. found: the answer, or why it failed."""

    name: str
    passed: bool
    seconds: float
    result: str


class ServerUnderTest:
    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url.rstrip("/"), token

    def ask(self, path: str, body: Any = None) -> str:
        return request(self._url + path, body, token=self._token)

    @cached_property
    def models(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.ask("/v1/models"))["data"]
        return listed

    def first(self, task: str) -> str | None:
        """Return the first model with a task, if there is one."""
        return next((model["id"] for model in self.models if model["task"] == task), None)


def checks_of(url: str, token: str | None = None) -> Iterator[Check]:
    """Run the checks one after the other, without those for which the server has no model."""
    server = ServerUnderTest(url, token)
    for name, check in _CHECKS.items():
        started = time.perf_counter()
        try:
            problem = check(server)
        except (RequestFailed, ValueError, LookupError, TypeError) as error:
            yield Check(name, False, time.perf_counter() - started, str(error) or repr(error))
            continue
        if problem is not None:
            yield Check(name, True, time.perf_counter() - started, problem)


def _status(path: str) -> Callable[[ServerUnderTest], str]:
    return lambda server: str(json.loads(server.ask(path))["status"])


def _models(server: ServerUnderTest) -> str:
    return ", ".join(str(model["id"]) for model in server.models)


def _languages(server: ServerUnderTest) -> str:
    pairs = json.loads(server.ask("/languages"))
    return ", ".join(f"{pair['code']} to {' '.join(pair['targets'])}" for pair in pairs) or "none"


def _translation(server: ServerUnderTest) -> str | None:
    if server.first("translate") is None:
        return None
    source = next(pair for pair in json.loads(server.ask("/languages")) if pair["targets"])
    languages = {"source": source["code"], "target": source["targets"][0]}
    answer = server.ask("/translate", {"q": _TEXT, **languages})
    return _some(json.loads(answer)["translatedText"])


def _completion(server: ServerUnderTest) -> str | None:
    if (model := server.first("generate")) is None:
        return None
    answer = server.ask("/v1/completions", {"model": model, "prompt": _TEXT, "max_tokens": 8})
    return _some(json.loads(answer)["choices"][0]["text"])


def _metrics(server: ServerUnderTest) -> str:
    samples = [
        line for line in server.ask("/metrics").splitlines() if line.startswith("attendant_")
    ]
    if not samples:
        raise ValueError("no metric of Attendant among them")
    return f"{len(samples)} samples"


def _some(text: str) -> str:
    if not text.strip():
        raise ValueError("the answer is empty")
    return json.dumps(text, ensure_ascii=False)


_CHECKS: dict[str, Callable[[ServerUnderTest], str | None]] = {
    "health": _status("/health"),
    "ready": _status("/ready"),
    "models": _models,
    "languages": _languages,
    "translation": _translation,
    "completion": _completion,
    "metrics": _metrics,
}
