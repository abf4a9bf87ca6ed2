"""Fields of OpenAI's API that change no answer here are accepted, whatever their values."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from serving.api.openai.fields_without_effect import NO_OP_VALUES
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.world import World

TALK: Any = [{"role": "user", "content": "Well?"}]
WITHOUT_EFFECT: dict[str, Any] = {
    "cache_prompt": False,
    "guided_decoding_backend": "xgrammar",
    "id_slot": 3,
    "keep_alive": "5m",
    "metadata": {"run": "7", "": ""},
    "prediction": {"type": "content", "content": "once"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "somebody",
    "service_tier": "priority",
    "spaces_between_special_tokens": False,
    "store": True,
    "ttl": 300,
    "user": "somebody",
    "user_security_context": {"application_name": "a"},
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


# Fields of other servers, with values that change nothing, and one that would.
OF_OTHER_SERVERS: list[tuple[str, list[Any], Any]] = [
    ("detokenize", [True], False),
    ("skip_special_tokens", [True], False),
    ("return_tokens_as_token_ids", [False], True),
    ("vllm_xargs", [{}], {"a": 1}),
    ("no_stop_trim", [False], True),
    ("separate_reasoning", [True], False),
    ("stream_reasoning", [True], False),
    ("dry_multiplier", [0, 0.0], 0.8),
    ("dynatemp_range", [0], 0.5),
    ("grammar", [""], 'root ::= "a"'),
    ("image_data", [[]], [{"data": "aGk="}]),
    ("lora", [[]], [{"id": 0}]),
    ("mirostat", [0], 2),
    ("n_probs", [0], 5),
    ("options", [{}], {"num_ctx": 4}),
    ("parse_tool_calls", [True], False),
    ("reasoning_format", ["auto", "deepseek"], "none"),
    ("repeat_penalty", [1, 1.0], 1.1),
    ("response_fields", [[]], ["content"]),
    ("return_progress", [False], True),
    ("return_tokens", [False], True),
    ("tfs_z", [1.0], 0.9),
    ("timings_per_token", [False], True),
    ("top_n_sigma", [-1], 1.5),
    ("xtc_probability", [0], 0.5),
    ("data_sources", [[]], [{"type": "search"}]),
    ("models", [[]], ["other"]),
    ("plugins", [[]], [{"id": "web"}]),
    ("provider", [{}], {"order": ["a"]}),
    ("safe_prompt", [False], True),
    ("transforms", [[]], ["middle-out"]),
    # What would change an answer whatever it says.
    ("prompt_logprobs", [], 0),
    ("truncate_prompt_tokens", [], -1),
    ("reasoning_effort", [], "high"),
    ("n_predict", [], 5),
    ("samplers", [], ["top_k"]),
    ("think", [], True),
]


async def test_values_that_change_nothing_are_accepted(chat_world: World) -> None:
    for path, body in ENDPOINTS:
        for name, values, other in OF_OTHER_SERVERS:
            for value in (*values, None):
                answer = await chat_world.client.post(path, json=body | {name: value})
                assert answer.status_code == 200, (name, answer.text)
            refused = await chat_world.client.post(path, json=body | {name: other})
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, name), error
    assert {*NO_OP_VALUES} <= {name for name, *_ in OF_OTHER_SERVERS}


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
