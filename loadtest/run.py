"""Runs one load test, from settings to timeline: connects, tries one request, runs the loop."""

import itertools
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp

from loadtest.arrivals import ClosedLoop, LoadPlan
from loadtest.clients import Client, CompletionsClient, TranslateClient, generated_tokens
from loadtest.report import progress_bar
from loadtest.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Settings:
    """Holds what the command line asked for; `url` ends in a slash."""

    url: str
    endpoint: str
    users: int
    duration: float
    requests: int | None
    warm_up: float
    input: Path
    model: str | None
    source: str
    target: str
    max_tokens: int
    timeout: float


async def measure(settings: Settings) -> Timeline:
    """Run the load test. Raises AnswerError if the server does not answer a first request."""
    texts = itertools.cycle(read_texts(settings.input))
    plan = LoadPlan(settings.users, settings.warm_up, settings.duration, settings.requests)
    timeline = Timeline(_header(settings))
    async with _open_session(settings) as session:
        client = _make_client(settings, session)
        await client.send(next(texts))
        with progress_bar() as show:
            loop = ClosedLoop(plan, client, texts, timeline, show)
            await loop.run(partial(generated_tokens, session, settings.model))
    return timeline


def read_texts(path: Path) -> list[str]:
    """Return the lines of a file that hold something. Raises ValueError where there are none."""
    texts = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    texts = [text for text in texts if text]
    if not texts:
        raise ValueError(f"{path} holds no text")
    return texts


def _header(settings: Settings) -> dict[str, object]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    return {**asdict(settings), "input": settings.input.name, "started": started}


def _open_session(settings: Settings) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        settings.url,
        connector=aiohttp.TCPConnector(limit=0),  # the users are the only limit
        timeout=aiohttp.ClientTimeout(total=settings.timeout),
    )


def _make_client(settings: Settings, session: aiohttp.ClientSession) -> Client:
    if settings.endpoint == "translate":
        return TranslateClient(session, settings.source, settings.target, settings.model)
    assert settings.model is not None, "the command line asks for one"
    return CompletionsClient(session, settings.model, settings.max_tokens)
