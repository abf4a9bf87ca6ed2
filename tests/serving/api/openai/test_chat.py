"""OpenAI's chats: asked by the official client, whole and streamed, and what is refused."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World
from tests.serving.text.tokenizers_for_tests import byte_level_bpe

ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Well?"}]
PROMPT = "system: Be brief.\nuser: Well?\nassistant:"
TEXT = " once upon a time"


@pytest.fixture
def official(chat_world: World) -> openai.AsyncOpenAI:
    client: Any = chat_world.client
    return openai.AsyncOpenAI(
        base_url="http://attendant/v1", api_key="x", http_client=client, max_retries=0
    )


async def chat(world: World, **fields: Any) -> httpx.Response:
    body = {"model": "story", "messages": ASKED, **fields}
    return await world.client.post("/v1/chat/completions", json=body)


def prompt_of(world: World, tokenizer: Tokenizer) -> str:
    request = world.generator_engine.requests[-1]
    assert request.is_whole
    return tokenizer.decode(request.prompt_ids)


async def test_a_whole_answer(
    official: openai.AsyncOpenAI, chat_world: World, tokenizer: Tokenizer
) -> None:
    answer = await official.chat.completions.create(model="story", messages=ASKED)

    [choice] = answer.choices
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", "story", "chatcmpl-")
    assert (choice.message.role, choice.message.content, choice.finish_reason) == (
        "assistant",
        TEXT,
        "stop",
    )
    assert choice.message.refusal is None and choice.logprobs is None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(PROMPT)
    assert answer.usage.completion_tokens == len(TEXT)
    assert prompt_of(chat_world, tokenizer) == PROMPT
    assert chat_world.generator_engine.requests[0].max_new_tokens is None


async def test_streamed_is_whole(official: openai.AsyncOpenAI) -> None:
    stream = await official.chat.completions.create(
        model="story",
        messages=ASKED,
        stream=True,
        stream_options={"include_usage": True},
        n=2,
        max_completion_tokens=5,
    )
    *chunks, last = [chunk async for chunk in stream]

    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk.id, chunk.created) for chunk in [*chunks, last]}) == 1
    for index in (0, 1):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == index]
        assert [choice.delta.role for choice in mine] == ["assistant", *[None] * (len(mine) - 1)]
        assert "".join(choice.delta.content or "" for choice in mine) == " once"
        assert [choice.finish_reason for choice in mine[-2:]] == [None, "length"]
    assert last.choices == [] and last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (len(PROMPT), 10)


WRITTEN = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Ay"


@pytest.fixture
async def harmony_world(tmp_path: Path) -> AsyncIterator[World]:
    bpe = byte_level_bpe()
    bpe.add_special_tokens(["<|start|>", "<|channel|>", "<|message|>", "<|end|>"])
    bpe.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path / "tokenizer.json")
    async with made_world(tokenizer, generator={"chat_template": "x"}) as world:
        world.generator_engine.script = lambda _: tokenizer.encode(WRITTEN, parse_special=True)
        yield world


async def test_reasoning_of_harmony_is_apart(harmony_world: World) -> None:
    whole = (await chat(harmony_world, stop="m", logprobs=True)).json()["choices"][0]
    streamed = (await chat(harmony_world, stream=True)).text
    said = whole["message"]
    assert (said["reasoning_content"], said["content"]) == ("Hm.", "Ay")
    tokens = [item["token"] for item in whole["logprobs"]["content"]]
    assert tokens[:2] == ["A", "y"] and "".join(tokens) == "Ay"
    assert re.findall('"reasoning_content":"(.)"', streamed) == ["H", "m", "."]


async def test_a_structured_answer_of_harmony_begins_at_once(harmony_world: World) -> None:
    for fields in ({}, {"response_format": {"type": "json_object"}}):
        await chat(harmony_world, **fields)
    plain, structured = (request.prompt_ids for request in harmony_world.generator_engine.requests)
    assert structured[: len(plain)] == plain
    assert len(structured) - len(plain) == 2 + len("final")


async def test_usage_with_every_chunk(chat_world: World) -> None:
    options = {"continuous_usage_stats": True}
    response = await chat(chat_world, stream=True, stream_options=options)

    *lines, end = [line for line in response.text.split("\n\n") if line]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert end == "data: [DONE]"
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts[0] == 1 and counts == sorted(counts) and counts[-1] == len(TEXT)


async def test_logprobs(official: openai.AsyncOpenAI, chat_world: World) -> None:
    chat_world.generator_engine.script = lambda request: [3 + 100, 3 + 101]
    answer = await official.chat.completions.create(
        model="story",
        messages=ASKED,
        logprobs=True,
        top_logprobs=2,
        max_tokens=1,
    )

    logprobs = answer.choices[0].logprobs
    assert logprobs is not None and logprobs.content is not None
    [token] = logprobs.content
    assert token.bytes is not None and len(token.bytes) == 1
    assert token.logprob == -0.5
    assert [other.logprob for other in token.top_logprobs] == [-0.5, -1.5]
    assert token.top_logprobs[0].token == token.token


async def test_logprobs_without_others(chat_world: World) -> None:
    body = (await chat(chat_world, logprobs=True, max_tokens=1)).json()

    content = body["choices"][0]["logprobs"]["content"]
    assert content == [{"token": " ", "logprob": -0.5, "bytes": [32], "top_logprobs": []}]


@pytest.mark.parametrize(
    ("fields", "prompt"),
    [
        ({"messages": [{"role": "user", "content": "a", "name": "Ann"}]}, "Ann: a\nassistant:"),
        ({"add_generation_prompt": False}, PROMPT.removesuffix("assistant:")),
        ({"chat_template_kwargs": {"mood": " Ha"}}, PROMPT + " Ha"),
        (
            {
                "messages": [
                    {
                        "role": "developer",
                        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    }
                ]
            },
            "developer: a\nb\nassistant:",
        ),
        (
            {
                "messages": [
                    {"role": "assistant", "content": "It", "refusal": None, "tool_calls": []}
                ],
                "continue_final_message": True,
            },
            "assistant: It",
        ),
    ],
)
async def test_what_the_template_writes(
    chat_world: World, tokenizer: Tokenizer, fields: dict[str, Any], prompt: str
) -> None:
    response = await chat(chat_world, **fields)

    assert response.status_code == 200, response.text
    assert prompt_of(chat_world, tokenizer) == prompt


async def test_decoding_reaches_the_engine(chat_world: World) -> None:
    request = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_tokens": 2, "seed": 3}
    response = await chat(chat_world, **request, n=2, max_tokens=12, stop="upon", min_p=0.1)

    assert [c["message"]["content"] for c in response.json()["choices"]] == [" once "] * 2
    first, second = chat_world.generator_engine.requests
    assert (first.sampling.temperature, first.sampling.top_k, first.sampling.min_p) == (0.5, 5, 0.1)
    assert (first.sampling.seed, second.sampling.seed) == (3, 4)
    assert (first.processors.min_tokens, first.max_new_tokens) == (2, 12)


async def test_answers_that_must_be_json(chat_world: World) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}

    response = await chat(chat_world, response_format=form, max_tokens=8)

    assert response.status_code == 200
    assert chat_world.generator_engine.requests[0].constraint is not None


NO_OP_VALUES: dict[str, Any] = {
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "modalities": ["text"],
    "audio": None,
    "logprobs": False,
}


async def test_no_op_fields_are_accepted(chat_world: World) -> None:
    assert (await chat(chat_world, **NO_OP_VALUES)).status_code == 200


USER = {"role": "user", "content": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "status", "words"),
    [
        ({"model": None}, "model", 400, "required"),
        ({"model": "x"}, "model", 404, "no such model; there are: "),
        ({"messages": None}, "messages", 400, "required"),
        ({"messages": []}, "messages", 400, "at least 1"),
        ({"messages": "a"}, "messages", 400, "list"),
        ({"messages": ["a"]}, "messages", 400, ""),
        ({"messages": [{"role": "user"}]}, "messages", 400, "content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages", 400, "content"),
        ({"messages": [{"role": "boss", "content": "a"}]}, "messages", 400, "'developer'"),
        ({"messages": [{**USER, "tool_calls": [{}]}]}, "messages", 400, "id is required"),
        ({"messages": [{**USER, "content": [IMAGE]}]}, "messages", 400, "image_url"),
        ({"messages": [{**USER, "content": [{"type": "text"}]}]}, "messages", 400, "text"),
        ({"messages": [{**USER, "content": "\ud800"}]}, "messages", 400, "Unicode"),
        ({"messages": [{**USER, "name": "a\0"}]}, "messages", 400, "NUL"),
        ({"messages": [{**USER, "content": "a" * 1001}]}, "messages", 413, "at most 1000"),
        ({"messages": [{**USER, "content": "a" * 200}]}, "messages", 400, "room in the context"),
        ({"messages": [{**USER, "role": "tool"}]}, "messages", 400, "no tools here"),
        ({"max_tokens": 127}, "max_tokens", 400, "must fit"),
        ({"max_tokens": 0}, "max_tokens", 400, "at least 1"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", 400, "greater than"),
        ({"max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens", 400, "max_tokens"),
        ({"tools": [TOOL]}, "tools", 400, "shows no tools"),
        ({"tool_choice": "required"}, "tool_choice", 400, "needs tools"),
        ({"functions": [{"name": "f"}]}, "functions", 400, "not supported"),
        ({"audio": {"voice": "x"}}, "audio", 400, "not supported"),
        ({"moderation": {"model": "x"}}, "moderation", 400, "not supported"),
        ({"reasoning_effort": "low"}, "reasoning_effort", 400, "not supported"),
        ({"verbosity": "low"}, "verbosity", 400, "not supported"),
        ({"web_search_options": {"user_location": None}}, "web_search_options", 400, "not"),
        ({"modalities": ["text", "audio"]}, "modalities", 400, "not supported"),
        ({"prompt": "a"}, "prompt", 400, "not supported"),
        ({"top_logprobs": 2}, "top_logprobs", 400, "needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", 400, "20"),
        ({"logprobs": 3}, "logprobs", 400, "boolean"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            400,
            "add_generation_prompt",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", 400, "messages"),
        ({"chat_template_kwargs": {"mood": "\ud800"}}, "messages", 400, "Unicode"),
        ({"n": 0}, "n", 400, "greater"),
        ({"temperature": -1}, "temperature", 400, "between"),
        ({"stop": ""}, "stop", 400, "none empty"),
        ({"made_up": 1}, "made_up", 400, "not supported"),
    ],
)
async def test_what_is_refused(
    chat_world: World, fields: dict[str, Any], param: str, status: int, words: str, stream: bool
) -> None:
    body = json.dumps({"model": "story", "messages": ASKED, **fields, "stream": stream})

    response = await chat_world.client.post("/v1/chat/completions", content=body)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (status, param), error
    assert words in error["message"]
    assert chat_world.generator_engine.requests == []


async def test_options_of_streams_need_a_stream(chat_world: World) -> None:
    response = await chat(chat_world, stream=False, stream_options={"include_usage": True})

    assert response.status_code == 400
    assert "stream: true" in response.json()["error"]["message"]


async def test_a_model_without_a_template_says_so(world: World) -> None:
    response = await chat(world)

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "messages")
    assert "model story has no chat template" in error["message"]


async def test_models_tell_whether_they_chat(world: World, chat_world: World) -> None:
    for each, has_template in ((world, False), (chat_world, True)):
        body = (await each.client.get("/v1/models/story")).json()
        assert body["has_chat_template"] is has_template


async def test_a_failure_within_a_stream_names_messages(chat_world: World) -> None:
    chat_world.generator_engine.fails_after = 1

    response = await chat(chat_world, stream=True)

    *_, last = [line for line in response.text.split("\n\n") if line]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
