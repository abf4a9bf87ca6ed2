"""Streams that are slow: what keeps their connections, and how they end."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from starlette.types import Message

from serving.api.http import streams
from serving.errors import Overloaded
from tests.serving.api.world import World

BODY = {"model": "story", "prompt": "a", "stream": True, "max_tokens": 40}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PING_SECONDS", 0.05)


async def test_a_slow_prompt_is_pinged_for(world: World, impatient: None) -> None:
    world.generator_engine.gate = asyncio.Event()
    asyncio.get_running_loop().call_later(1.0, world.generator_engine.gate.set)
    response = await world.client.post("/v1/completions", json=BODY)

    events = response.text.strip().split("\n\n")
    assert response.status_code == 200
    assert events[:2] == [": ping", ": ping"] and events[-1] == "data: [DONE]"
    texts = [json.loads(e[6:])["choices"][0]["text"] for e in events if e[:7] == "data: {"]
    assert "".join(texts) == " once upon a time"


async def test_clients_read_on_over_pings_and_learn_of_late_failures(
    world: World, impatient: None
) -> None:
    world.generator_engine.gate = asyncio.Event()
    world.generator_engine.fails_after = 1
    asyncio.get_running_loop().call_later(0.2, world.generator_engine.gate.set)
    client: object = world.client
    official = openai.AsyncOpenAI(
        base_url="http://attendant/v1",
        api_key="x",
        http_client=client,  # type: ignore[arg-type]
        max_retries=0,
    )
    stream = await official.completions.create(model="story", prompt="a", stream=True)

    with pytest.raises(openai.APIError, match="the engine failed"):
        async for _ in stream:
            pass


async def test_what_is_refused_at_once_has_its_own_status(world: World) -> None:
    world.generator_engine.refusal = Overloaded(3, retry_after_seconds=0.25)
    response = await world.client.post("/v1/completions", json=BODY)

    assert response.status_code == 429
    assert response.headers["retry-after-ms"] == "250"
    assert response.headers["retry-after"] == "1"


async def test_who_goes_away_while_it_waits_cancels(world: World) -> None:
    world.generator_engine.gate = asyncio.Event()
    asking = asyncio.create_task(world.client.post("/v1/completions", json=BODY))
    while not world.generator_engine.requests:
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)

    assert len(world.generator_engine.cancelled) == 1


async def test_events_that_are_ready_together_are_sent_together() -> None:
    async def events() -> AsyncGenerator[str, None]:
        yield "a"
        yield "b"
        await asyncio.sleep(0.01)
        yield "c"

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.4"}}
    await streams.EventStream(events(), AsyncExitStack())(scope, asyncio.Queue().get, send)

    assert [message.get("body") for message in sent] == [None, b"ab", b"c", b""]
