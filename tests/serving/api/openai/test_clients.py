"""Tests what people have in their programs: LangChain's ChatOpenAI and litellm, over a socket."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from fastapi import FastAPI

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.api.openai.test_tools import CALL, TEMPLATE, TOOLS

TEXT = " once upon a time"
WEATHER_IN = [("weather", {"city": "Pa}ris"})]


@pytest.fixture(scope="module")
def url(tokenizer: Tokenizer) -> Iterator[str]:
    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with made_world(tokenizer, generator={"chat_template": TEMPLATE}) as world:
            script = world.generator_engine.script
            world.generator_engine.script = lambda request: (
                tokenizer.encode(CALL) if request.constraint else script(request)
            )
            yield world.app

    with listening(app) as url:
        yield f"{url}/v1"


async def test_langchain(url: str) -> None:
    package = pytest.importorskip("langchain_openai", reason="LangChain is not installed")
    async with httpx.AsyncClient() as client:
        options: dict[str, Any] = {"base_url": url, "api_key": "x", "http_async_client": client}
        chat = package.ChatOpenAI(model="story", **options)
        whole = await chat.ainvoke("Well?")
        pieces = [piece.content async for piece in chat.astream("Well?")]
        scored = await chat.bind(logprobs=True).ainvoke("Well?")
        called = await chat.bind_tools(TOOLS).ainvoke("Paris?")
        description = {
            "role": "tool",
            "content": "warm",
            "tool_call_id": called.tool_calls[0]["id"],
        }
        after = await chat.ainvoke([("user", "Paris?"), called, description])
        by_responses = package.ChatOpenAI(model="story", use_responses_api=True, **options)
        call = await by_responses.bind_tools(TOOLS).ainvoke("Paris?")
        description = {"role": "tool", "content": "warm", "tool_call_id": call.tool_calls[0]["id"]}
        after_items = await by_responses.ainvoke([("user", "Paris?"), call, description])
        translated = await package.ChatOpenAI(model="shout:fr", **options).ainvoke("Go on.")
        with pytest.raises(openai.NotFoundError):
            await package.ChatOpenAI(model="nobody", **options).ainvoke("Well?")

    assert whole.content == "".join(pieces) == TEXT and len(pieces) > 5
    assert whole.usage_metadata["output_tokens"] == len(TEXT)
    assert len(scored.response_metadata["logprobs"]["content"]) == len(TEXT) + 1
    assert [(call["name"], call["args"]) for call in called.tool_calls] == WEATHER_IN
    assert after.content == after_items.text == TEXT
    assert [(tool_call["name"], tool_call["args"]) for tool_call in call.tool_calls] == WEATHER_IN
    assert translated.content == "GO ON."


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    return pytest.importorskip("litellm", reason="litellm wants an older openai than this one")


def asked_of(url: str, model: str = "story", **fields: Any) -> dict[str, Any]:
    talk = {"messages": [{"role": "user", "content": "Well?"}]}
    return {"model": f"openai/{model}", "api_base": url, "api_key": "x", **talk, **fields}


@pytest.mark.filterwarnings("ignore::UserWarning")  # pydantic's, of litellm's own types
async def test_litellm(url: str, litellm: Any) -> None:
    whole = await litellm.acompletion(**asked_of(url))
    stream = await litellm.acompletion(**asked_of(url, stream=True))
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    translated = await litellm.acompletion(**asked_of(url, "shout:fr"))

    assert whole.choices[0].message.content == "".join(pieces) == TEXT
    assert translated.choices[0].message.content == "WELL?"
    with pytest.raises(litellm.exceptions.NotFoundError):
        await litellm.acompletion(**asked_of(url, "nobody"))
    with pytest.raises(litellm.exceptions.BadRequestError, match="temperature"):
        await litellm.acompletion(**asked_of(url, temperature=-1))


@pytest.mark.filterwarnings("ignore::UserWarning")
async def test_litellm_calls_tools(url: str, litellm: Any) -> None:
    pytest.importorskip("mcp", reason="litellm reads tools with the package mcp")
    called = await litellm.acompletion(**asked_of(url, tools=TOOLS))

    [call] = called.choices[0].message.tool_calls
    assert [(call.function.name, json.loads(call.function.arguments))] == WEATHER_IN
