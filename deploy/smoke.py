"""Tries a running server as its first client would: one look at each thing that it must do.

Nothing about its models is known beforehand; what the server lists is what is tried.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deploy.asking import Refused, ask

_TEXT = "Good morning."


@dataclass(frozen=True)
class Check:
    """Says how one thing went. found: what was seen, or why it failed."""

    name: str
    passed: bool
    seconds: float
    found: str


class Server:
    """Asks a server for what the checks want to know."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url, self._token = url.rstrip("/"), token

    def ask(self, path: str, body: Any = None) -> str:
        return ask(self._url + path, body, token=self._token)

    @cached_property
    def models(self) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json.loads(self.ask("/v1/models"))["data"]
        return listed

    def first(self, task: str) -> str | None:
        """Return the first model with a task, if there is one."""
        return next((model["id"] for model in self.models if model["task"] == task), None)


def checks_of(url: str, token: str | None = None) -> Iterator[Check]:
    """Try one thing after the other. What no model of the server does is not tried."""
    server = Server(url, token)
    for name, check in _CHECKS.items():
        started = time.perf_counter()
        try:
            found = check(server)
        except (Refused, ValueError, LookupError, TypeError) as error:
            yield Check(name, False, time.perf_counter() - started, str(error) or repr(error))
            continue
        if found is not None:
            yield Check(name, True, time.perf_counter() - started, found)


def _status(path: str) -> Callable[[Server], str]:
    return lambda server: str(json.loads(server.ask(path))["status"])


def _models(server: Server) -> str:
    return ", ".join(str(model["id"]) for model in server.models)


def _languages(server: Server) -> str:
    pairs = json.loads(server.ask("/languages"))
    return ", ".join(f"{each['code']} to {' '.join(each['targets'])}" for each in pairs) or "none"


def _translation(server: Server) -> str | None:
    if server.first("translate") is None:
        return None
    source = next(each for each in json.loads(server.ask("/languages")) if each["targets"])
    languages = {"source": source["code"], "target": source["targets"][0]}
    answer = server.ask("/translate", {"q": _TEXT, **languages})
    return _some(json.loads(answer)["translatedText"])


def _completion(server: Server) -> str | None:
    if (model := server.first("generate")) is None:
        return None
    answer = server.ask("/v1/completions", {"model": model, "prompt": _TEXT, "max_tokens": 8})
    return _some(json.loads(answer)["choices"][0]["text"])


def _metrics(server: Server) -> str:
    samples = [
        line for line in server.ask("/metrics").splitlines() if line.startswith("attendant_")
    ]
    if not samples:
        raise ValueError("no metric of ours among them")
    return f"{len(samples)} samples"


def _some(text: str) -> str:
    if not text.strip():
        raise ValueError("the answer is empty")
    return json.dumps(text, ensure_ascii=False)


_CHECKS: dict[str, Callable[[Server], str | None]] = {
    "health": _status("/health"),
    "ready": _status("/ready"),
    "models": _models,
    "languages": _languages,
    "translation": _translation,
    "completion": _completion,
    "metrics": _metrics,
}
