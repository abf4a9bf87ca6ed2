"""This project's server answers what the load test asks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.generator.protocols import PROTOCOLS, Events
from loadtest.plan import WorkPlan
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.pipelines.fakes import byte_tokenizer

MODELS = {"translate": None, "completions": "story", "chat": "story"}


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    template = {"chat_template": CHAT_TEMPLATE}
    async with made_world(byte_tokenizer(tmp_path), generator=template) as world:
        yield world.client


def body(protocol: str, is_streamed: bool) -> dict[str, Any]:
    plan = WorkPlan(protocol=protocol, model=MODELS[protocol], is_streamed=is_streamed)
    return PROTOCOLS[protocol].body("Hello.", plan)


@pytest.mark.parametrize("protocol", MODELS)
async def test_every_protocol_is_answered(client: httpx.AsyncClient, protocol: str) -> None:
    answer = await client.post(PROTOCOLS[protocol].path, json=body(protocol, False))
    assert answer.status_code == 200, answer.text
    assert PROTOCOLS[protocol].output(answer.json()).text


@pytest.mark.parametrize("protocol", ["completions", "chat"])
async def test_every_stream_is_read(client: httpx.AsyncClient, protocol: str) -> None:
    answer = await client.post(PROTOCOLS[protocol].path, json=body(protocol, True))
    events = Events()
    pieces = [PROTOCOLS[protocol].piece(chunk) for chunk in events.feed(answer.content)]
    assert len([piece for piece in pieces if piece]) > 1
    assert events.is_done
