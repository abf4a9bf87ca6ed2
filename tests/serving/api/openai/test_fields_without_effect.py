"""Fields of OpenAI's API that change no answer here are accepted, whatever their values."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.world import World

TALK: Any = [{"role": "user", "content": "Well?"}]
WITHOUT_EFFECT: dict[str, Any] = {
    "metadata": {"run": "7", "": ""},
    "prediction": {"type": "content", "content": "once"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "somebody",
    "service_tier": "priority",
    "store": True,
    "user": "somebody",
}
OTHER_VALUES = (7, "", {"a": [1]}, ["none"], True)  # vLLM takes them, too
ENDPOINTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"model": "story", "prompt": "a"}),
    ("/v1/chat/completions", {"model": "story", "messages": TALK}),
]


@pytest.fixture
async def chat_world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
        yield world


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize("name", WITHOUT_EFFECT)
async def test_they_are_accepted(
    chat_world: World, path: str, body: dict[str, Any], name: str
) -> None:
    for value in (WITHOUT_EFFECT[name], None, *OTHER_VALUES):
        response = await chat_world.client.post(path, json=body | {name: value})
        assert response.status_code == 200, response.text
    first, *others = chat_world.generator_engine.requests
    for other in others:
        assert (first.prompt_ids, first.sampling) == (other.prompt_ids, other.sampling)


@pytest.mark.parametrize("name", ["audio", "moderation", "web_search_options"])
async def test_what_would_change_the_answer_is_refused_by_name(
    chat_world: World, name: str
) -> None:
    path, body = ENDPOINTS[1]
    response = await chat_world.client.post(path, json=body | {name: {"mode": "block"}})

    assert (response.status_code, response.json()["error"]["param"]) == (400, name)


async def test_a_mark_for_the_cache_leaves_a_message_as_it_is(chat_world: World) -> None:
    part = {"type": "text", "text": "Well?", "prompt_cache_breakpoint": {"mode": "explicit"}}
    for content in ("Well?", [part]):
        messages = [{"role": "user", "content": content}]
        body = {"model": "story", "messages": messages}
        response = await chat_world.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
    first, second = chat_world.generator_engine.requests
    assert first.prompt_ids == second.prompt_ids
