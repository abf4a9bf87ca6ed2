"""The application over scripted engines, and a client that talks to it without a network."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from serving.api.application import create_app
from serving.api.http.services import Services
from serving.observability.metrics import Metrics
from serving.pipelines.catalog import Catalog, Model
from serving.server_config import TextLimits
from serving.text.language_identification import LanguageIdentifier
from serving.text.tokenizer import Tokenizer
from serving.translation_memory.store import TranslationMemories
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import byte_tokenizer, scripted_generator, shouting_translator


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return byte_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
async def world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with made_world(tokenizer) as world:
        yield world


@pytest.fixture
async def world_without_attention(tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with made_world(tokenizer, num_heads=0) as world:
        yield world


CHAT_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}"
    "{% endif %}{{ m.name or m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{{ mood }}{% endif %}"
)


@pytest.fixture
async def chat_world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    """Its generator has a chat template."""
    async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
        yield world


@asynccontextmanager
async def made_world(
    tokenizer: Tokenizer,
    generator: dict[str, Any] | None = None,
    access: dict[str, Any] | None = None,
    others: Sequence[Model] = (),
    **options: Any,
) -> AsyncIterator[World]:
    """Return scripted models, an application that serves them, and its client.

    generator, options: fields of the generator's and of the translator's manifest.
    access: further fields of Services. others: further models.
    """
    limits = TextLimits(max_characters=1000, max_segments=20)
    state = (access or {}).get("state")
    memories = TranslationMemories(state) if state else None
    translator, translator_engine = shouting_translator(
        tokenizer, max_segments=limits.max_segments, memories=memories, **options
    )
    teller, generator_engine = scripted_generator(tokenizer, **(generator or {}))
    metrics = Metrics("r1")

    async def exposition() -> bytes:
        return metrics.exposition()

    readiness = [True]
    services = Services(
        Catalog([translator, teller, *others]),
        limits,
        metrics,
        exposition,
        lambda: readiness[0],
        identifier=_identifier,
        **access or {},
    )
    with nullcontext(create_app(services)) if access else reused_app(services) as app:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://attendant") as client:
            engines = translator_engine, generator_engine
            yield World(app, client, *engines, metrics, readiness, services)


_identifier = LanguageIdentifier()  # its model is loaded once: half a second
_idle: list[tuple[FastAPI, Services]] = []


@contextmanager
def reused_app(services: Services) -> Iterator[FastAPI]:
    """Return an application that no test uses; making its routes takes longer than most tests."""
    fields = dict(vars(services))
    app, replaced = _idle.pop() if _idle else (create_app(services), services)
    vars(replaced).clear()
    vars(replaced).update(fields)
    yield app
    _idle.append((app, replaced))
