"""What clients send back of earlier answers, and what they note in messages, changes no prompt."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.test_tools import CALL, TEMPLATE, TOOLS, WEATHER, says
from tests.serving.api.world import World

ASKED: Any = [{"role": "user", "content": "Paris?"}]
THOUGHTS_TEMPLATE = TEMPLATE.replace(
    "{{ m.content }}", "<{{ m.reasoning_content }}>{{ m.content }}"
)


@pytest.fixture
async def world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with made_world(tokenizer, generator={"chat_template": THOUGHTS_TEMPLATE}) as world:
        yield world


@pytest.fixture
def official(world: World) -> openai.AsyncOpenAI:
    client: Any = world.client
    options: Any = {"base_url": "http://attendant/v1", "http_client": client, "max_retries": 0}
    return openai.AsyncOpenAI(api_key="x", **options)


def prompt_of(world: World, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(world.generator_engine.requests[-1].prompt_ids)


async def prompt_after(world: World, tokenizer: Tokenizer, path: str, **body: Any) -> str:
    answer = await world.client.post(path, json={"model": "story", **body})
    assert answer.status_code == 200, answer.text
    return prompt_of(world, tokenizer)


SAID = {"role": "assistant", "content": "Ay."}
CALLED = {"name": "weather", "arguments": '{"city": "Paris"}'}
CALLS = [{"id": "call_1", "type": "function", "function": CALLED}]
RESULT = {"role": "tool", "content": "sun", "tool_call_id": "call_1"}
TEXT_PART = {"type": "text", "text": "Paris?"}
# Members that say nothing, and messages that they are added to.
OF_ANSWERS: list[dict[str, Any]] = [
    {"refusal": None, "audio": None, "annotations": [], "function_call": None},
    {"annotations": [{"type": "url_citation", "url_citation": {"url": "https://x.y"}}]},
    {"tool_calls": []},
    {"tool_calls": None},
    {"id": "msg_1", "created_at": 7, "status": "completed"},
    {"parsed": None},
    {"parsed": {"city": "Rome"}},
    {"provider_specific_fields": {"refusal": None}, "thinking_blocks": None},
    {"reasoning": None, "reasoning_content": None, "reasoning_details": []},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]},
    {"weight": 0, "index": 0, "finish_reason": "stop"},
    {"refusal": "", "images": [], "prefix": False, "partial": False},
    {"cache_control": {"type": "ephemeral"}},
]
NOTES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *[(SAID, notes) for notes in OF_ANSWERS],
    (ASKED[0], {"id": "u1", "cache_control": {"type": "ephemeral"}, "name": None}),
    (ASKED[0], {"metadata": {"a": 1}, "timestamp": "2026-01-01", "tool_call_id": None}),
    (RESULT, {"id": "t1", "status": "success", "artifact": None, "is_error": False}),
]


async def test_notes_in_a_message_change_no_prompt(world: World, tokenizer: Tokenizer) -> None:
    path = "/v1/chat/completions"
    for message, notes in NOTES:
        plain = await prompt_after(world, tokenizer, path, messages=[*ASKED, message, *ASKED])
        noted = [*ASKED, {**message, **notes}, *ASKED]
        assert await prompt_after(world, tokenizer, path, messages=noted) == plain, notes


async def test_a_tool_may_answer_nothing(world: World, tokenizer: Tokenizer) -> None:
    path = "/v1/chat/completions"
    called = {"role": "assistant", "content": None, "tool_calls": CALLS}
    prompts = set()
    empty: list[dict[str, Any]] = [{"content": ""}, {"content": None}, {"content": []}, {}]
    for content in empty:
        result = {"role": "tool", "tool_call_id": "call_1", **content}
        body = {"messages": [*ASKED, called, result], "tools": TOOLS}
        prompts.add(await prompt_after(world, tokenizer, path, **body))
    assert len(prompts) == 1


NOTES_IN_PARTS: list[dict[str, Any]] = [
    {"cache_control": {"type": "ephemeral"}},
    {"annotations": []},
    {"annotations": [{"type": "file_citation"}], "logprobs": []},
    {"prompt_cache_breakpoint": {"mode": "explicit"}},
    {"id": "part_1", "index": 0, "extras": {}, "citations": None},
]


async def test_notes_in_a_part_change_no_prompt(world: World, tokenizer: Tokenizer) -> None:
    plain = await prompt_after(world, tokenizer, "/v1/chat/completions", messages=ASKED)
    for path, field, kind in (
        ("/v1/chat/completions", "messages", "text"),
        ("/v1/responses", "input", "input_text"),
        ("/v1/responses", "input", "output_text"),
    ):
        for notes in NOTES_IN_PARTS:
            said = [{"role": "user", "content": [{**TEXT_PART, **notes, "type": kind}]}]
            assert await prompt_after(world, tokenizer, path, **{field: said}) == plain, notes


NOTES_IN_CALLS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"index": 0}, {}),
    ({"extra_content": {"google": {"thought_signature": "x"}}}, {}),
    ({}, {"parsed_arguments": {"city": "Paris"}}),
    ({"cache_control": None}, {"description": None}),
]


async def test_notes_in_a_call_change_no_prompt(world: World, tokenizer: Tokenizer) -> None:
    prompts = set()
    for call, function in [({}, {}), *NOTES_IN_CALLS]:
        calls = [{**CALLS[0], **call, "function": {**CALLED, **function}}]
        messages = [*ASKED, {"role": "assistant", "content": None, "tool_calls": calls}, RESULT]
        body = {"messages": messages, "tools": TOOLS}
        prompts.add(await prompt_after(world, tokenizer, "/v1/chat/completions", **body))
    [prompt] = prompts
    assert "Paristool" in prompt


async def test_thoughts_reach_the_template_by_both_names(
    world: World, tokenizer: Tokenizer
) -> None:
    for name in ("reasoning", "reasoning_content"):
        for content in ({"content": "Ay."}, {"content": None}, {}):
            said = {"role": "assistant", **content, name: "Hm.", "refusal": None}
            messages = [*ASKED, said, *ASKED]
            path = "/v1/chat/completions"
            prompt = await prompt_after(world, tokenizer, path, messages=messages)
            assert f"assistant: <Hm.>{content.get('content') or ''}user:" in prompt


NO_PARAMETERS: list[dict[str, Any]] = [
    {},
    {"parameters": None},
    {"parameters": {}},
    {"parameters": None, "strict": None, "description": None},
    {"strict": None, "cache_control": {"type": "ephemeral"}},
]


@pytest.mark.parametrize("fields", NO_PARAMETERS)
async def test_a_tool_without_parameters_is_one_without_arguments(
    world: World, tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    chat = {"messages": ASKED, "tools": [{"type": "function", "function": {"name": "now"}}]}
    plain = await prompt_after(world, tokenizer, "/v1/chat/completions", **chat)
    function = {"name": "now", **fields}
    tools = [{"type": "function", "function": function, "cache_control": {"type": "ephemeral"}}]
    flat = [{"type": "function", **function}]

    for path, body in (
        ("/v1/chat/completions", {**chat, "tools": tools}),
        ("/v1/responses", {"input": ASKED, "tools": flat}),
    ):
        assert await prompt_after(world, tokenizer, path, **body) == plain


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *[
        ("messages", {"messages": [*ASKED, {**SAID, name: value}]}, name)
        for name, value in (
            ("audio", {"id": "audio_1"}),
            ("function_call", CALLED),
            ("refusal", "I cannot."),
            ("prefix", True),
            ("partial", True),
            ("images", ["aGk="]),
        )
    ],
    ("messages", {"messages": [{"role": "user", "text": "Paris?"}]}, "content is required"),
    ("messages", {"messages": [{"role": "user", "content": None}]}, "content is required"),
    ("messages", {"messages": [{"role": "function", "content": "a"}]}, "'developer'"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "a text"),
    ("messages", {"messages": [{**SAID, "content": [{"type": "thinking"}]}]}, "type text"),
    ("messages", {"messages": [{**SAID, "tool_calls": [{"id": "1"}]}]}, "function is required"),
    ("messages", {"messages": [{**SAID, "reasoning_content": 7}]}, "string"),
    (
        "tools",
        {"messages": ASKED, "tools": [{"type": "function", "function": {"name": "a", "x": 1}}]},
        "x is not supported here",
    ),
    (
        "tools",
        {
            "messages": ASKED,
            "tools": [{"type": "function", "function": {"name": "a", "parameters": []}}],
        },
        "dictionary",
    ),
]


async def test_what_would_change_the_answer_is_refused(world: World) -> None:
    for field, body, words in REFUSED:
        answer = await world.client.post("/v1/chat/completions", json={"model": "story", **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, field), error
        assert (error["type"], error["code"]) == ("invalid_request_error", None)
        assert words in error["message"], error


async def test_the_official_client_sends_back_what_it_got(
    official: openai.AsyncOpenAI, world: World, tokenizer: Tokenizer
) -> None:
    says(world, tokenizer, f"I look.\n{CALL}")
    first = await official.chat.completions.create(model="story", messages=ASKED, tools=TOOLS)
    async with official.chat.completions.stream(
        model="story", messages=ASKED, tools=[strict_tool()]
    ) as stream:
        parsed = await stream.get_final_completion()
    for message in (first.choices[0].message, parsed.choices[0].message):
        call = (message.tool_calls or [])[0]
        result = {**RESULT, "tool_call_id": call.id}
        for replayed in (message, message.model_dump(), message.to_dict()):
            messages: Any = [*ASKED, replayed, result]
            await official.chat.completions.create(model="story", messages=messages, tools=TOOLS)
            assert "Pa}ristool: <>sun" in prompt_of(world, tokenizer)


def strict_tool() -> Any:
    return openai.pydantic_function_tool(Weather, name="weather")


class Weather(openai.BaseModel):
    city: str


async def test_the_official_client_sends_back_items_of_responses(
    official: openai.AsyncOpenAI, world: World, tokenizer: Tokenizer
) -> None:
    says(world, tokenizer, f"I look.\n{CALL}")
    tools: Any = [{"type": "function", "name": "weather", "parameters": WEATHER, "strict": None}]
    whole = await official.responses.create(model="story", input="Paris?", tools=tools)
    async with official.responses.stream(model="story", input="Paris?", tools=tools) as stream:
        streamed = await stream.get_final_response()
    prompts = set()
    for answer in (whole, streamed):
        call: Any = answer.output[1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
        for dump in (lambda item: item, lambda item: item.model_dump(), lambda i: i.to_dict()):
            said: Any = [*ASKED, *map(dump, answer.output), {**result, "id": None, "status": None}]
            await official.responses.create(model="story", input=said, tools=tools)
            prompts.add(prompt_of(world, tokenizer))
    [prompt] = prompts
    assert "assistant: <>I look.\nPa}ristool: <>sun" in prompt


ITEMS: list[tuple[list[dict[str, Any]], str]] = [
    (
        [
            {
                "id": "rs_1",
                "type": "reasoning",
                "summary": [],
                "status": None,
                "encrypted_content": None,
                "content": [{"type": "reasoning_text", "text": "Hm."}],
            },
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "phase": "final_answer",
                "content": [
                    {"type": "output_text", "text": "Ay.", "annotations": [], "logprobs": []}
                ],
            },
        ],
        "assistant: <Hm.>Ay.user:",
    ),
    (
        [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}],
        "user: <>Paris?user:",
    ),
    (
        [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "id": "fc_1", "call_id": "1", "status": None, **CALLED},
            {"type": "function_call_output", "id": "o", "call_id": "1", "output": "sun"},
        ],
        "assistant: <Hm.>Paristool: <>sunuser:",
    ),
]


@pytest.mark.parametrize(("items", "expected"), ITEMS)
async def test_items_of_answers_are_read_as_messages(
    world: World, tokenizer: Tokenizer, items: list[dict[str, Any]], expected: str
) -> None:
    said = [*ASKED, *items, *ASKED]
    prompt = await prompt_after(world, tokenizer, "/v1/responses", input=said)

    assert expected in prompt
