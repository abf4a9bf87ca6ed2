"""`attendant mcp`, asked by the SDK's own client, which starts it as editors do."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from serving.access.key_ring import KEY_VARIABLE, KeyRing
from serving.storage.opening import open_state
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.listening import listening
from tests.serving.pipelines.fakes import byte_tokenizer

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where an application listens that asks for a key."""
    folder = tmp_path_factory.mktemp("mcp")
    access = {"keys": KeyRing(None, {KEY_VARIABLE: "secret"}), "state": open_state(folder)}

    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with made_world(byte_tokenizer(folder), access=access) as world:
            yield world.app

    with listening(app) as found:
        yield found


def client_of(url: str, key: str) -> Client:
    arguments = ["-m", "serving.cli", "mcp", "--url", url]
    environment = {"PYTHONPATH": str(ROOT), KEY_VARIABLE: key}
    return Client(StdioServerParameters(command=sys.executable, args=arguments, env=environment))


async def called(client: Client, tool: str, /, **arguments: Any) -> Any:
    """The result; of a call that failed what the model is told."""
    answer = await client.call_tool(tool, arguments)
    if answer.is_error:
        return " ".join(each.text for each in answer.content if each.type == "text")
    told = answer.structured_content
    return told["result"] if {*told} == {"result"} else told


async def test_all_tools(url: str) -> None:
    async with client_of(url, "secret") as client:
        tools = (await client.list_tools()).tools
        [language] = await called(client, "list_languages")
        [guess, *_] = await called(client, "detect_language", text="The dog runs over the street.")
        entries = {'a "red" dog': "hound, red", "cat": "puss"}
        asked = {"name": "animals", "source": "en", "target": "fr", "entries": entries}
        made = await called(client, "create_glossary", **asked)
        [listed] = await called(client, "list_glossaries")
        texts = {"texts": ["A dog runs.", "The cat."], "target": "fr"}
        plain = await called(client, "translate", **texts)
        terms = {"source": "en", "glossary_id": made["glossary_id"]}
        held = await called(client, "translate", **texts, **terms)
        refused = await called(client, "translate", texts=["a"], target="xx")

    assert all(tool.description for tool in tools) and len(tools) == 5
    assert (language["code"], language["targets"], guess["language"]) == ("en", ["fr"], "en")
    assert listed == made and made["dictionaries"][0]["entry_count"] == 2
    assert plain == ["A DOG RUNS.", "THE CAT."] and held == ["A DOG RUNS.", "THE puss."]
    assert "'target_lang' not supported" in refused


async def test_what_keeps_the_server_away_is_told(url: str) -> None:
    async with client_of(url, "wrong") as client:
        keyless = await called(client, "list_glossaries")
    async with client_of("http://127.0.0.1:1", "") as client:
        away = await called(client, "list_languages")

    assert "key" in keyless.lower() and "refused" in away
