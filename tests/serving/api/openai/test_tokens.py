"""vLLM's `/tokenize` and `/detokenize`, and what is told of models and of what decides answers."""

from typing import Any

import pytest

from tests.serving.api.world import World
from tests.serving.pipelines.fakes import BOS

MESSAGES = [{"role": "user", "content": "Hé"}]
TOOL = {"type": "function", "function": {"name": "now"}}


async def ask(world: World, path: str, **body: Any) -> Any:
    return await world.client.post(path, json={"model": "story", **body})


async def test_a_prompt_and_back(chat_world: World) -> None:
    text = "Hé, 日本"
    answer = (await ask(chat_world, "/tokenize", prompt=text, return_token_strs=True)).json()
    plain = (await ask(chat_world, "/tokenize", prompt=text, add_special_tokens=False)).json()
    back = (await ask(chat_world, "/detokenize", tokens=answer["tokens"])).json()

    assert answer["tokens"] == [BOS, *plain["tokens"]]
    assert (answer["count"], plain["count"]) == (len(text.encode()) + 1, len(text.encode()))
    assert answer["max_model_len"] == 128 and plain["token_strs"] is None
    assert answer["token_strs"][1] == "H" and len(answer["token_strs"]) == answer["count"]
    assert back == {"prompt": text}


async def test_a_chat_is_what_its_template_writes(chat_world: World) -> None:
    answer = (await ask(chat_world, "/tokenize", messages=MESSAGES)).json()
    await ask(chat_world, "/v1/chat/completions", messages=MESSAGES)

    assert tuple(answer["tokens"]) == chat_world.generator_engine.requests[0].prompt_ids


async def test_a_translator_reads_sources(chat_world: World) -> None:
    answer = (await ask(chat_world, "/tokenize", model="shout:fr", prompt="a")).json()
    await chat_world.client.post("/translate", json={"q": "a", "source": "en", "target": "fr"})

    assert tuple(answer["tokens"]) == chat_world.translator_engine.requests[0].source_ids


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {}, 400, "body"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "body"),
        ("/tokenize", {"prompt": "a", "model": "nobody"}, 404, "model"),
        ("/tokenize", {"prompt": "a" * 1001}, 413, "prompt"),
        ("/tokenize", {"messages": [{"role": "user", "content": "a" * 1001}]}, 413, "messages"),
        ("/tokenize", {"messages": MESSAGES, "model": "shout"}, 400, "messages"),
        (
            "/tokenize",
            {"messages": MESSAGES, "add_special_tokens": True},
            400,
            "add_special_tokens",
        ),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": True}, 400, "add_generation_prompt"),
        (
            "/tokenize",
            {"prompt": "a", "continue_final_message": True},
            400,
            "continue_final_message",
        ),
        (
            "/tokenize",
            {"prompt": "a", "chat_template_kwargs": {"a": 1}},
            400,
            "chat_template_kwargs",
        ),
        ("/tokenize", {"prompt": "a", "tools": [TOOL]}, 400, "tools"),
        ("/tokenize", {"prompt": "a", "model": "shout:xx"}, 404, "model"),
        ("/detokenize", {"tokens": [-1]}, 400, "tokens"),
        ("/detokenize", {"tokens": [10**9]}, 400, "tokens"),
        ("/detokenize", {"tokens": "a"}, 400, "tokens"),
    ],
)
async def test_refusals(
    chat_world: World, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    response = await ask(chat_world, path, **body)

    assert response.status_code == status, response.text
    assert response.json()["error"]["param"] == param


async def test_what_is_told_of_a_model(world: World) -> None:
    answer = (await world.client.get("/v1/models/shout")).json()

    assert (answer["max_model_len"], answer["max_source_tokens"]) == (128, 64)
    assert (answer["precision"], answer["architecture"]) == ("fp32", "fake")
    assert answer["domain"] is None


@pytest.mark.parametrize("name", ["shout:xx", "shout:", "story:fr", "story/fr"])
async def test_a_model_of_no_such_language_is_none(world: World, name: str) -> None:
    response = await world.client.get(f"/v1/models/{name}")

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


async def test_fields_that_change_nothing_are_taken(chat_world: World) -> None:
    plain = await ask(chat_world, "/tokenize", messages=MESSAGES)
    said = await ask(
        chat_world, "/tokenize", messages=MESSAGES, add_special_tokens=False, tools=None
    )

    assert said.json() == plain.json() and plain.status_code == 200
