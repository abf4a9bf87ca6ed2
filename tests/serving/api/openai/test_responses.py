"""OpenAI's Responses: asked by the official client, whole and streamed, and what is refused."""

import json
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel

from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.openai.test_tools import CALL, OTHER, TEMPLATE, WEATHER, allows, says
from tests.serving.api.world import World

TEXT = " once upon a time"
ASKED: Any = {"model": "story", "input": "Well?"}
TOOLS: Any = [
    {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True},
    {"type": "function", "name": "now", "parameters": None, "strict": False},
]


class Trip(BaseModel):
    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def responses_of(world: World) -> Any:
    http: Any = world.client
    options: Any = {"base_url": "http://attendant/v1", "http_client": http, "max_retries": 0}
    return openai.AsyncOpenAI(api_key="x", **options).responses


@pytest.fixture
def responses(chat_world: World) -> Any:
    return responses_of(chat_world)


@pytest.fixture
async def tool_world(tokenizer: Tokenizer) -> AsyncIterator[World]:
    async with made_world(tokenizer, generator={"chat_template": TEMPLATE}) as world:
        yield world


async def ask(world: World, **fields: Any) -> httpx.Response:
    return await world.client.post("/v1/responses", content=json.dumps(ASKED | fields))


async def whole_and_streamed(responses: Any, **asked: Any) -> tuple[Any, Any]:
    whole = await responses.create(**asked)
    async with responses.stream(**asked) as stream:
        return whole, await stream.get_final_response()


def prompt_of(world: World, tokenizer: Tokenizer) -> str:
    return tokenizer.decode(world.generator_engine.requests[-1].prompt_ids)


async def test_a_whole_answer(responses: Any, chat_world: World, tokenizer: Tokenizer) -> None:
    options = {"temperature": 0.5, "metadata": {"run": "7"}, "store": True, "service_tier": "flex"}
    answer = await responses.create(**ASKED, instructions="Be brief.", **options)

    prompt = "system: Be brief.\nuser: Well?\nassistant:"
    assert prompt_of(chat_world, tokenizer) == prompt
    assert (answer.object, answer.status, answer.model) == ("response", "completed", "story")
    assert answer.id.startswith("resp_") and answer.output_text == TEXT
    assert (answer.output[0].role, answer.output[0].status) == ("assistant", "completed")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (len(prompt), len(TEXT))
    assert (answer.temperature, answer.metadata) == (0.5, {"run": "7"})
    assert answer.to_dict()["store"] is False


@pytest.mark.parametrize("fields", [{}, {"max_output_tokens": 5}])
async def test_streamed_is_whole(responses: Any, fields: dict[str, Any]) -> None:
    whole = await responses.create(**ASKED, **fields)
    events = [item async for item in await responses.create(**ASKED, **fields, stream=True)]

    status = "incomplete" if fields else "completed"
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert deltas > 1 and kinds == [
        *("created", "in_progress", "output_item.added", "content_part.added"),
        *["output_text.delta"] * deltas,
        *("output_text.done", "content_part.done", "output_item.done", status),
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].response.output == [] and events[0].response.status == "in_progress"
    last = events[-1].response
    assert "".join(event.delta for event in events[4:-4]) == last.output_text == whole.output_text
    assert (last.usage, last.status) == (whole.usage, status) and whole.status == status
    if fields:
        assert (last.incomplete_details.reason, last.output_text) == ("max_output_tokens", " once")


async def test_a_conversation_goes_on(
    responses: Any, chat_world: World, tokenizer: Tokenizer
) -> None:
    first = await responses.create(**ASKED)
    parts = [{"type": "input_text", "text": item} for item in ("And", "then?")]
    said = [{"role": "user", "content": "Well?"}, *first.output, {"role": "user", "content": parts}]
    await responses.create(model="story", input=said)

    expected = f"user: Well?\nassistant: {TEXT}\nuser: And\nthen?\nassistant:"
    assert prompt_of(chat_world, tokenizer) == expected


async def test_log_probabilities(responses: Any) -> None:
    include = ["message.output_text.logprobs"]
    answers = await whole_and_streamed(responses, **ASKED, include=include, top_logprobs=2)

    whole, streamed = [answer.output[0].content[0].logprobs for answer in answers]
    assert "".join(token.token for token in whole) == TEXT and streamed == whole
    assert len(whole[0].top_logprobs) == 2


async def test_answers_follow_schemas(
    responses: Any, chat_world: World, tokenizer: Tokenizer
) -> None:
    says(chat_world, tokenizer, '{"city":"Rome","days":2}')
    answer = await responses.parse(**ASKED, text_format=Trip)
    async with responses.stream(**ASKED, text_format=Trip) as stream:
        streamed = await stream.get_final_response()

    assert answer.output_parsed == streamed.output_parsed == Trip(city="Rome", days=2)
    [request, _] = chat_world.generator_engine.requests
    assert allows(request, tokenizer, '{"city":"Rome","days":2}')
    assert not allows(request, tokenizer, '{"city":"Oslo","days":2}')


async def test_calls_of_functions(tool_world: World, tokenizer: Tokenizer) -> None:
    says(tool_world, tokenizer, f"\n{CALL}\n{OTHER}")
    responses = responses_of(tool_world)
    whole, streamed = await whole_and_streamed(responses, **ASKED, tools=TOOLS)
    for answer in (whole, streamed):
        assert [call.name for call in answer.output] == ["weather", "now"]
        assert json.loads(answer.output[0].arguments) == {"city": "Pa}ris"}
        assert len({call.call_id for call in answer.output}) == 2

    says(tool_world, tokenizer, f"I look.\n{CALL}")
    call = {**whole.output[0].to_dict(), "arguments": '{"city": "Paris"}'}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    said = [{"role": "user", "content": "Paris?"}, call, result]
    last = await responses.create(model="story", input=said, tools=TOOLS)
    assert [item.type for item in last.output] == ["message", "function_call"]
    assert "assistant: Paristool: sun" in prompt_of(tool_world, tokenizer)
    choice = {"type": "function", "name": "now"}
    await responses.create(**ASKED, tools=TOOLS, tool_choice=choice)
    request = tool_world.generator_engine.requests[-1]
    assert allows(request, tokenizer, OTHER) and not allows(request, tokenizer, CALL)


async def test_a_late_failure_raises(responses: Any, chat_world: World) -> None:
    chat_world.generator_engine.fails_after = 3
    with pytest.raises(openai.APIError, match="engine failed"):
        async for _ in await responses.create(**ASKED, stream=True):
            pass


async def test_translators_answer(world: World) -> None:
    request = {"model": "shout:fr", "input": "A dog runs. It is small.", "instructions": "Do."}
    for answer in await whole_and_streamed(responses_of(world), **request):
        assert answer.output_text == "A DOG RUNS. IT IS SMALL."
    refused = await ask(world, model="shout:fr", text={"format": {"type": "json_object"}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text")


REFUSED: list[tuple[str, Any]] = [
    *[("previous_response_id", "resp_1"), ("conversation", "conv_1"), ("background", True)],
    *[("reasoning", {"effort": "high"}), ("truncation", "auto"), ("prompt", {"id": "p"})],
    *[("moderation", {"model": "m"}), ("text", {"verbosity": "low"}), ("text", "x")],
    *[("input", []), ("input", [{"type": "reasoning", "summary": []}]), ("input", 3)],
    *[("input", [{"role": "user", "content": [3]}]), ("input", [{"role": "user", "content": 3}])],
    ("input", [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]),
    *[("input", [{"role": "user"}]), ("input", [{"role": [], "content": ""}])],
    ("input", [{"type": "function_call", "call_id": "1", "name": "x", "arguments": {}}]),
    *[("tools", [{"type": "web_search"}]), ("tools", [{"type": "function", "name": "a b"}])],
    *[("tool_choice", {"type": "function", "name": "x"}), ("tool_choice", "required")],
    *[("max_output_tokens", 0), ("top_logprobs", 2), ("wings", 1), ("temperature", -1)],
    ("text", {"format": {"type": "json_schema", "name": "x"}}),
]


@pytest.mark.parametrize(("field", "value"), REFUSED)
async def test_what_is_refused_is_named(chat_world: World, field: str, value: Any) -> None:
    response = await ask(chat_world, **{field: value})

    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, field)
    assert error["message"].startswith(field)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_changes_nothing_is_accepted_and_sent_back_as_text(
    chat_world: World, stream: bool
) -> None:
    tool = {"type": "function", "name": "x", "parameters": {"default": float("nan")}}
    fields = {"reasoning": {}, "truncation": "disabled", "background": False, "max_tool_calls": 3}
    fields |= {"include": ["reasoning.encrypted_content"], "text": {"verbosity": "medium"}}
    fields |= {"metadata": {"a": "\ud800", "b": 1}, "tools": [tool], "tool_choice": "none"}
    response = await ask(chat_world, stream=stream, user={}, store=[], **fields)

    assert response.status_code == 200, response.text
    assert '"metadata":{"a":"?"}' in response.text and '"default":"NaN"' in response.text


async def test_no_answer_is_kept(chat_world: World) -> None:
    name = (await ask(chat_world)).json()["id"]
    response = await chat_world.client.get(f"/v1/responses/{name}")

    assert (response.status_code, response.json()["error"]["type"]) == (404, "not_found_error")
