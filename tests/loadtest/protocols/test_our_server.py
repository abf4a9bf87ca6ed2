"""This project's server takes what the load test asks, and refuses what it breaks on purpose."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtest.generator.items import FAULTS, Item, broken
from loadtest.generator.protocols import PROTOCOLS, Events
from loadtest.plan import WorkPlan
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.pipelines.fakes import byte_tokenizer

MODELS = {"translate": None, "completions": "story", "chat": "story"}
KINDS = ("default", "greedy", "sampled", "beam4")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    template = {"chat_template": CHAT_TEMPLATE}
    async with made_world(byte_tokenizer(tmp_path), generator=template) as world:
        yield world.client


def body(protocol: str, kind: str, is_streamed: bool) -> dict[str, Any]:
    item = Item(3, kind, protocol, MODELS[protocol], "Hello.", "Be brief.")
    plan = WorkPlan(targets=(), is_streamed=is_streamed)
    return PROTOCOLS[protocol].body(item, plan)


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_is_answered(client: httpx.AsyncClient, protocol: str, kind: str) -> None:
    answer = await client.post(PROTOCOLS[protocol].path, json=body(protocol, kind, False))
    assert answer.status_code == 200, answer.text
    assert PROTOCOLS[protocol].output(answer.json()).text


@pytest.mark.parametrize("protocol", ["completions", "chat"])
async def test_every_stream_is_read(client: httpx.AsyncClient, protocol: str) -> None:
    answer = await client.post(PROTOCOLS[protocol].path, json=body(protocol, "greedy", True))
    events = Events()
    pieces = [PROTOCOLS[protocol].piece(chunk) for chunk in events.feed(answer.content)]
    assert len([piece for piece in pieces if piece]) > 1
    assert events.is_done


@pytest.mark.parametrize("protocol", MODELS)
@pytest.mark.parametrize("fault", FAULTS)
async def test_what_is_broken_is_refused_in_json(
    client: httpx.AsyncClient, protocol: str, fault: str
) -> None:
    content = broken(body(protocol, "default", False), fault)
    headers = {"Content-Type": "application/json"}
    answer = await client.post(PROTOCOLS[protocol].path, content=content, headers=headers)
    assert 400 <= answer.status_code < 500
    assert isinstance(json.loads(answer.content), dict)
