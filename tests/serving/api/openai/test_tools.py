"""Tools in chats: what the template shows, the grammar that holds calls, and how they are told."""

import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import openai
import pytest

from serving.requests.request import GenerationRequest
from serving.text.constraints.grammars import Grammars
from serving.text.tokenizer import Tokenizer
from serving.text.tool_calls import (
    ToolCallParser,
    ToolFunction,
    tool_call_grammar,
)
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import EOS

TEMPLATE = (
    "{% if tools %}{% for t in tools %}{{ t.function.name }} {% endfor %}"
    'as <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>\n{% endif %}'
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %}\n{% endfor %}"
)
WEATHER: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
ASKED: Any = [{"role": "user", "content": "Paris?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Pa}ris"}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.fixture
async def tool_world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    options = {"chat_template": TEMPLATE}
    async with made_world(tokenizer, generator=options) as world:
        says(world, tokenizer, f"I look.\n{CALL}\n{OTHER}")
        yield world


def says(world: World, tokenizer: Tokenizer, text: str) -> None:
    world.generator_engine.script = lambda request: tokenizer.encode(text)


@pytest.fixture
def official(tool_world: World) -> openai.AsyncOpenAI:
    client: Any = tool_world.client
    return openai.AsyncOpenAI(
        base_url="http://attendant/v1", api_key="x", http_client=client, max_retries=0
    )


def allows(request: GenerationRequest, tokenizer: Tokenizer, text: str) -> bool:
    """Whether the grammar of a request allows a text as a whole."""
    assert request.constraint is not None
    return follows(request.constraint.start(), tokenizer, text)


def follows(matcher: Any, tokenizer: Tokenizer, text: str) -> bool:
    mask = np.zeros(tokenizer.vocab_size, bool)
    for token_id in tokenizer.encode(text):
        matcher.fill_mask(mask)
        if not mask[token_id]:
            return False
        matcher.accept(token_id)
    matcher.fill_mask(mask)
    return bool(mask[EOS])


async def test_calls_of_a_whole_answer(
    official: openai.AsyncOpenAI, tool_world: World, tokenizer: Tokenizer
) -> None:
    answer = await official.chat.completions.create(model="story", messages=ASKED, tools=TOOLS)

    [choice] = answer.choices
    calls: Any = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and choice.message.content == "I look."
    assert [call.function.name for call in calls] == ["weather", "now"]
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Pa}ris"}, {}]
    assert len({call.id for call in calls}) == 2
    [request] = tool_world.generator_engine.requests
    assert tokenizer.decode(request.prompt_ids).startswith("weather now as <tool_call>")


async def test_streamed_calls(official: openai.AsyncOpenAI) -> None:
    async with official.chat.completions.stream(
        model="story", messages=ASKED, tools=TOOLS
    ) as stream:
        pieces = [event async for event in stream if event.type == "chunk"]
        final = (await stream.get_final_completion()).choices[0]

    calls: Any = final.message.tool_calls
    assert final.finish_reason == "tool_calls" and final.message.content == "I look.\n"
    assert [call.function.name for call in calls] == ["weather", "now"]
    assert json.loads(calls[0].function.arguments) == {"city": "Pa}ris"}
    assert len(pieces) > 20


async def test_the_conversation_goes_on(
    official: openai.AsyncOpenAI, tool_world: World, tokenizer: Tokenizer
) -> None:
    says(tool_world, tokenizer, "Sunny.")
    function = {"name": "weather", "arguments": '{"city": "Paris"}'}
    messages: Any = [
        *ASKED,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
    ]
    answer = await official.chat.completions.create(model="story", messages=messages, tools=TOOLS)

    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("Sunny.", "stop")
    assert choice.message.tool_calls is None
    [request] = tool_world.generator_engine.requests
    assert "assistant: Paristool: sun" in tokenizer.decode(request.prompt_ids)


@pytest.mark.parametrize(
    ("fields", "allowed", "refused"),
    [
        ({}, ["Text <b>.", CALL, f"Hm.{CALL}\n{OTHER}"], [CALL + "more", "<tool_call>x"]),
        ({"tool_choice": "required"}, [CALL, f"{CALL}\n{CALL}"], ["Text.", "Hm." + CALL]),
        ({"tool_choice": "required", "parallel_tool_calls": False}, [CALL], [f"{CALL}\n{CALL}"]),
        (
            {"tool_choice": {"type": "function", "function": {"name": "now"}}},
            [OTHER],
            [CALL, "Text.", f"{OTHER}\n{OTHER}"],
        ),
    ],
)
async def test_arguments_are_held(
    tool_world: World,
    tokenizer: Tokenizer,
    fields: dict[str, Any],
    allowed: list[str],
    refused: list[str],
) -> None:
    body = {"model": "story", "messages": ASKED, "tools": TOOLS, **fields}
    response = await tool_world.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    [request] = tool_world.generator_engine.requests

    bad_arguments = [CALL.replace("city", "town"), CALL.replace('"Pa}ris"', "1")]
    assert all(allows(request, tokenizer, text) for text in allowed)
    assert not any(allows(request, tokenizer, text) for text in [*refused, *bad_arguments])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": 1}}}]},
            "tools",
        ),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}
                ]
            },
            "tools",
        ),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "function", "function": {"name": "fly"}},
            },
            "tool_choice",
        ),
        ({"tools": TOOLS, "model": "shout"}, "tools"),
    ],
)
async def test_what_is_refused(tool_world: World, fields: dict[str, Any], param: str) -> None:
    body = {"model": "story", "messages": ASKED, **fields}
    response = await tool_world.client.post("/v1/chat/completions", json=body)

    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_templates_without_tools_say_so(chat_world: World) -> None:
    body = {"model": "story", "messages": ASKED, "tools": TOOLS}
    response = await chat_world.client.post("/v1/chat/completions", json=body)
    without = await chat_world.client.post(
        "/v1/chat/completions", json=body | {"tool_choice": "none"}
    )

    assert response.status_code == 400 and without.status_code == 200
    assert "shows no tools" in response.json()["error"]["message"]


async def test_a_stop_at_the_end_of_a_call_leaves_its_arguments_whole(
    tool_world: World, tokenizer: Tokenizer
) -> None:
    says(tool_world, tokenizer, CALL)
    body = {"model": "story", "messages": ASKED, "tools": TOOLS, "stop": ["</tool_call>"]}
    response = await tool_world.client.post("/v1/chat/completions", json=body)

    [choice] = response.json()["choices"]
    [call] = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "Pa}ris"}
    assert choice["finish_reason"] == "tool_calls"


def test_nobody_says_how_arguments_are_laid_out(tokenizer: Tokenizer) -> None:
    loose = {**WEATHER, "x-guidance": {"whitespace_pattern": "[\\n]*", "lenient": True}}
    grammar = tool_call_grammar([ToolFunction("weather", loose)], must_call=True, several=False)
    constraint = Grammars(tokenizer, [EOS]).lark(grammar)

    head = '<tool_call>\n{"name": "weather", "arguments": '
    assert follows(constraint.start(), tokenizer, head + '{"city": "a"}}\n</tool_call>')
    assert not follows(constraint.start(), tokenizer, head + '{\n"city": "a"}}\n</tool_call>')


@pytest.mark.parametrize("parameters", [{}, {"properties": {}}, {"type": ["object", "null"]}])
def test_arguments_are_an_object(tokenizer: Tokenizer, parameters: dict[str, Any]) -> None:
    grammar = tool_call_grammar([ToolFunction("f", parameters)], must_call=True, several=False)
    constraint = Grammars(tokenizer, [EOS]).lark(grammar)

    for arguments, is_allowed in (("{}", True), ("null", False), ("[]", False), ("1", False)):
        call = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
        assert follows(constraint.start(), tokenizer, call) == is_allowed


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
@pytest.mark.parametrize("text", ["plain <to", f"a {CALL}\n{OTHER}", CALL[:-12], CALL[:30], OTHER])
def test_pieces_are_the_whole(text: str, step: int) -> None:
    def read(size: int) -> tuple[str, list[str], list[str]]:
        reader = ToolCallParser()
        pieces = [p for i in range(0, len(text), size) for p in reader.push(text[i : i + size])]
        pieces += reader.finish()
        said = "".join(piece.text for piece in pieces if piece.call is None)
        names = [piece.name for piece in pieces if piece.name]
        arguments = [
            "".join(piece.text for piece in pieces if piece.call == n) for n in range(len(names))
        ]
        return said, names, arguments

    assert read(step) == read(len(text))


def test_a_tool_without_parameters_takes_any_object(tokenizer: Tokenizer) -> None:
    grammar = tool_call_grammar([ToolFunction("f", {})], must_call=True, several=False)
    constraint = Grammars(tokenizer, [EOS]).lark(grammar)

    call = '<tool_call>\n{"name": "f", "arguments": {"a": [1]}}\n</tool_call>'
    assert follows(constraint.start(), tokenizer, call)
