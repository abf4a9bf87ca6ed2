"""vLLM's `return_token_ids` and `include_stop_str_in_output`, whole and streamed alike."""

import json
from typing import Any

import pytest

from serving.text.tokenizer import Tokenizer
from tests.serving.api.openai.test_completions import chunks
from tests.serving.api.world import World
from tests.serving.pipelines.fakes import BOS, EOS

TEXT = " once upon a time"
ASKED: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "Well?", "max_tokens": 50},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Well?"}]},
}
PATHS = tuple(ASKED)


async def whole_and_streamed(world: World, path: str, **fields: Any) -> tuple[Any, list[Any]]:
    body = {"model": "story", **ASKED[path], **fields}
    whole = await world.client.post(path, json=body)
    assert whole.status_code == 200, whole.text
    return whole.json(), chunks(await world.client.post(path, json={**body, "stream": True}))


def text_of(choice: dict[str, Any]) -> str:
    said = choice if "text" in choice else choice.get("message") or choice["delta"]
    return str(said.get("text") or said.get("content") or "")


IDS: list[tuple[dict[str, Any], str, bool]] = [
    # options, the text of the token ids, whether a stop token follows
    ({}, TEXT, True),
    ({"max_tokens": 5}, TEXT[:5], False),
    ({"stop": "upon"}, TEXT[:10], False),
    ({"stop": ["a t", "upon"], "include_stop_str_in_output": True}, TEXT[:10], False),
    ({"n": 2}, TEXT, True),
    ({"logprobs": 1}, TEXT, True),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("fields", "text", "is_stopped"), IDS)
async def test_token_ids(
    chat_world: World,
    tokenizer: Tokenizer,
    path: str,
    fields: dict[str, Any],
    text: str,
    is_stopped: bool,
) -> None:
    if path == PATHS[1] and "logprobs" in fields:
        fields = {"logprobs": True}
    whole, pieces = await whole_and_streamed(chat_world, path, return_token_ids=True, **fields)

    [value] = {request.prompt_ids for request in chat_world.generator_engine.requests}
    prompt_ids = [BOS, *value] if path == PATHS[0] else [*value]
    expected = tokenizer.encode(text) + [EOS] * is_stopped
    assert [choice["token_ids"] for choice in whole["choices"]] == [expected] * fields.get("n", 1)
    for index, choice in enumerate(whole["choices"]):
        mine = [item for item in pieces if item["choices"][0]["index"] == index]
        sent = [token_id for item in mine for token_id in item["choices"][0]["token_ids"]]
        assert sent == choice["token_ids"]
        assert "".join(text_of(item["choices"][0]) for item in mine) == text_of(choice)
        if path == PATHS[0]:
            holders, answer = [item["choices"][0] for item in mine], choice
        else:
            holders, answer = mine, whole
        assert answer["prompt_token_ids"] == holders[0]["prompt_token_ids"] == prompt_ids
        assert not any("prompt_token_ids" in item for item in holders[1:])


@pytest.mark.parametrize("path", PATHS)
async def test_ids_come_only_if_asked_for(chat_world: World, path: str) -> None:
    for fields in ({}, {"return_token_ids": False}, {"return_token_ids": None}):
        whole, pieces = await whole_and_streamed(chat_world, path, **fields)
        assert "token_ids" not in json.dumps([whole, pieces])


async def test_ids_of_several_prompts(chat_world: World, tokenizer: Tokenizer) -> None:
    path = "/v1/completions"
    prompts = ["a", "be"]
    whole, _ = await whole_and_streamed(chat_world, path, prompt=prompts, return_token_ids=True)
    of_ids, _ = await whole_and_streamed(
        chat_world, path, prompt=[5, 6], echo=True, return_token_ids=True
    )

    items = [choice["prompt_token_ids"] for choice in whole["choices"]]
    assert items == [[BOS, *tokenizer.encode(prompt)] for prompt in prompts]
    [choice] = of_ids["choices"]
    assert choice["prompt_token_ids"] == [5, 6]
    assert choice["token_ids"] == [*tokenizer.encode(TEXT), EOS]


STOPS: list[tuple[Any, str, str]] = [
    # stop strings, the text without, and with the one that ended it
    ("upon", " once ", " once upon"),
    (" a", " once upon", " once upon a"),
    (["a time", "on"], " ", " on"),
    (["on", "once"], " ", " on"),
    (["time"], " once upon a ", TEXT),
    ("e", " onc", " once"),
    (["nothing"], TEXT, TEXT),
    ("timely", TEXT, TEXT),
]


@pytest.mark.parametrize("path", PATHS)
async def test_the_text_that_ends_an_answer(chat_world: World, path: str) -> None:
    for stop, without, with_it in STOPS:
        for includes, text in ((False, without), (True, with_it)):
            whole, pieces = await whole_and_streamed(
                chat_world, path, stop=stop, include_stop_str_in_output=includes
            )
            assert text_of(whole["choices"][0]) == text, stop
            assert "".join(text_of(piece["choices"][0]) for piece in pieces) == text
            assert whole["choices"][0]["finish_reason"] == "stop"


async def test_translators_refuse_what_they_have_not(chat_world: World) -> None:
    body = {"model": "shout:fr", "prompt": "a", "return_token_ids": True}
    refused = await chat_world.client.post("/v1/completions", json=body)

    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, "return_token_ids")
