"""Fields of OpenAI's API that change no answer here are accepted, if their values are as OpenAI has
them; asked by HTTP and by OpenAI's own client.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from fastapi import FastAPI

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.openai.listening import listening
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
WRONG = [
    ("metadata", {"run": 7}),
    ("metadata", "run"),
    ("metadata", {"k" * 65: "v"}),
    ("metadata", {"k": "v" * 513}),
    ("metadata", {str(number): "" for number in range(17)}),
    ("prediction", {"type": "image", "content": ""}),
    ("prediction", "once"),
    ("prompt_cache_key", 3),
    ("prompt_cache_options", {"mode": "none"}),
    ("prompt_cache_retention", "1h"),
    ("safety_identifier", "s" * 129),
    ("service_tier", "cheap"),
    ("store", "yes"),
    ("user", {"name": "somebody"}),
]
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
    for value in (WITHOUT_EFFECT[name], None):
        response = await chat_world.client.post(path, json=body | {name: value})
        assert response.status_code == 200, response.text
    first, second = chat_world.generator_engine.requests
    assert (first.prompt_ids, first.sampling) == (second.prompt_ids, second.sampling)


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize(("name", "value"), WRONG)
async def test_wrong_values_are_refused_by_name(
    chat_world: World, path: str, body: dict[str, Any], name: str, value: Any
) -> None:
    response = await chat_world.client.post(path, json=body | {name: value})

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


@pytest.mark.parametrize("stream", [False, True])
def test_openais_client_sends_them_all(tokenizer: Tokenizer, stream: bool) -> None:
    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
            yield world.app

    options: Any = {"stream_options": {"include_obfuscation": False}} if stream else {}
    with listening(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
        chat: Any = client.chat.completions.create(
            model="story", messages=TALK, stream=stream, **WITHOUT_EFFECT, **options
        )
        completion: Any = client.completions.create(
            model="story", prompt="a", user="me", stream=stream, extra_body={"store": False}
        )
        if stream:
            assert "".join(each.choices[0].delta.content or "" for each in chat)
            assert "".join(each.choices[0].text for each in completion)
        else:
            assert chat.choices[0].message.content and completion.choices[0].text
