"""Translators that are asked by OpenAI's clients, in completions and in chats."""

import json
from typing import Any

import httpx
import openai
import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

TALK: Any = [
    {"role": "system", "content": "Translate."},
    {"role": "user", "content": "no"},
    {"role": "assistant", "content": "NO"},
    {"role": "user", "content": "A dog runs. It is small."},
]
SHOUTED = "A DOG RUNS. IT IS SMALL."


@pytest.fixture
def official(world: World) -> openai.AsyncOpenAI:
    client: Any = world.client
    return openai.AsyncOpenAI(
        base_url="http://attendant/v1", api_key="x", http_client=client, max_retries=0
    )


async def ask(world: World, path: str, **fields: Any) -> httpx.Response:
    given: dict[str, Any] = {"prompt": "Go."} if path == "completions" else {"messages": TALK}
    return await world.client.post(f"/v1/{path}", json={"model": "shout", **given, **fields})


@pytest.mark.parametrize(
    ("model", "extra"),
    [
        ("shout", {}),
        ("shout:fr", {}),
        ("shout", {"target_language": "fr", "source_language": "en"}),
        ("shout:FR", {"source_language": "en-US"}),
    ],
)
async def test_the_last_text_of_the_user_is_translated(
    official: openai.AsyncOpenAI, world: World, model: str, extra: dict[str, Any]
) -> None:
    answer = await official.chat.completions.create(model=model, messages=TALK, extra_body=extra)

    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == (SHOUTED, "stop")
    assert answer.model == "shout" and answer.usage is not None
    sources = [request.source_ids or () for request in world.translator_engine.requests]
    assert answer.usage.prompt_tokens == sum(map(len, sources))
    assert answer.usage.completion_tokens == len(SHOUTED) - 1  # without the blank between
    assert {request.sampling.temperature for request in world.translator_engine.requests} == {0.0}


async def test_streamed_is_whole_and_comes_in_pieces(official: openai.AsyncOpenAI) -> None:
    stream = await official.chat.completions.create(
        model="shout:fr", messages=TALK, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]

    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(pieces) == SHOUTED and len([piece for piece in pieces if piece]) > 5
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    assert last.usage is not None and last.usage.completion_tokens == len(SHOUTED) - 1


async def test_completions_of_several_prompts(official: openai.AsyncOpenAI) -> None:
    answer = await official.completions.create(model="shout", prompt=["a.", "b."], n=2)

    assert [choice.text for choice in answer.choices] == ["A.", "A.", "B.", "B."]
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


@pytest.mark.parametrize("streams", [False, True])
async def test_hypotheses_of_a_search(world: World, streams: bool, tokenizer: Tokenizer) -> None:
    [world.translator_engine.ending] = tokenizer.encode("Z")
    response = await ask(world, "completions", n=3, num_beams=3, prompt=["a", "b"], stream=streams)

    texts = [""] * 6
    if streams:
        *lines, _ = response.text.strip().split("\n\n")
        for line in lines:
            [choice] = json.loads(line.removeprefix("data: "))["choices"]
            texts[choice["index"]] += choice["text"]
    else:
        texts = [choice["text"] for choice in response.json()["choices"]]
    assert texts == ["A", "AZ", "AZZ", "B", "BZ", "BZZ"]


async def test_missing_alternatives_are_the_last_one_again(world: World) -> None:
    world.translator_engine.most_hypotheses = 1
    response = await ask(world, "completions", n=2, num_beams=2)

    assert [choice["text"] for choice in response.json()["choices"]] == ["GO.", "GO."]


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("completions", {"prompt": [1, 2]}, "prompt"),
        ("completions", {"echo": True}, "echo"),
        ("completions", {"logprobs": 1}, "logprobs"),
        ("completions", {"stop": "x"}, "stop"),
        ("completions", {"prompt": "Go on. " * 30}, "prompt"),
        ("chat/completions", {"messages": TALK[:1]}, "messages"),
        ("chat/completions", {"continue_final_message": True}, "continue_final_message"),
        ("chat/completions", {"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        ("chat/completions", {"response_format": {"type": "json_object"}}, "response_format"),
        ("chat/completions", {"target_language": "de"}, "target_language"),
        ("chat/completions", {"source_language": "de"}, "source_language"),
        ("chat/completions", {"model": "shout:de"}, "target_language"),
        ("chat/completions", {"model": "shout:fr", "target_language": "de"}, "target_language"),
        ("completions", {"model": "story", "target_language": "fr"}, "target_language"),
        ("completions", {"model": "story:fr"}, "model"),
        ("completions", {"model": "shout:"}, "model"),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_refusals_name_the_field(
    world: World, path: str, fields: dict[str, Any], param: str, streams: bool
) -> None:
    response = await ask(world, path, **fields, stream=streams)

    assert response.status_code in (400, 404, 413), response.text
    assert response.json()["error"]["param"] == param
    assert world.translator_engine.requests == []


async def test_a_model_of_several_languages_wants_to_know_which(tokenizer: Tokenizer) -> None:
    codes = ("en", "fr", "de")
    async with made_world(tokenizer, source_languages=codes, target_languages=codes) as world:
        unknown = await ask(world, "completions")
        items = [
            await ask(world, "completions", prompt="Der Hund und die Katze.", **fields)
            for fields in ({"model": "shout:fr"}, {"target_language": "en"})
        ]
        described = await world.client.get("/v1/models/shout:fr")

    message = unknown.json()["error"]["message"]
    assert unknown.status_code == 400
    assert "en, fr, de" in message and "target_language" in message
    assert [answer.status_code for answer in items] == [200, 200]
    assert described.json()["id"] == "shout"
