"""OpenAI's own client over a real socket: its exceptions, and its retries."""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import openai
import pytest
from fastapi import FastAPI

from serving.errors import (
    DeadlineExceeded,
    EngineStopped,
    OutOfMemory,
    Overloaded,
    QuotaExceeded,
    TooLarge,
)
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import CHAT_TEMPLATE, made_world
from tests.serving.api.openai.listening import listening
from tests.serving.api.world import World

TALK: Any = [{"role": "user", "content": "Well?"}]


@pytest.fixture(scope="module")
def scripted_client(tokenizer: Tokenizer) -> Iterator[tuple[str, World]]:
    """Where a world listens, and what is told of its engines."""
    worlds: list[World] = []

    @asynccontextmanager
    async def app() -> AsyncIterator[FastAPI]:
        async with made_world(tokenizer, generator={"chat_template": CHAT_TEMPLATE}) as world:
            worlds.append(world)
            yield world.app

    with listening(app) as url:
        yield f"{url}/v1", worlds[0]


@pytest.fixture
def client(scripted_client: tuple[str, World]) -> Iterator[openai.OpenAI]:
    url, world = scripted_client
    with openai.OpenAI(base_url=url, api_key="x", max_retries=2) as client:
        yield client
    world.generator_engine.refusal = None


@pytest.mark.parametrize(
    ("error", "expected", "attempts"),
    [
        (Overloaded(9, retry_after_seconds=0.2), openai.RateLimitError, 3),
        (QuotaExceeded("no more", 86_400), openai.RateLimitError, 1),
        (TooLarge("prompt", "a", "is too long"), openai.APIStatusError, 1),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_its_own_and_are_tried_again_when_they_say(
    scripted_client: tuple[str, World],
    client: openai.OpenAI,
    error: Exception,
    expected: type[openai.APIStatusError],
    attempts: int,
    stream: bool,
) -> None:
    _, world = scripted_client
    asked: list[float] = []

    def refuse(*_: Any) -> None:
        asked.append(time.monotonic())
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.generator_engine, "check_room", refuse)
        with pytest.raises(expected):
            client.completions.create(model="story", prompt="a", stream=stream)

    assert len(asked) == attempts
    assert all(later - sooner >= 0.2 for sooner, later in pairwise(asked))


@pytest.mark.parametrize(
    "error",
    [EngineStopped("stopping"), OutOfMemory("full"), DeadlineExceeded(1), ValueError("a bug")],
)
def test_what_is_not_the_clients_fault_is_told_as_the_servers(
    scripted_client: tuple[str, World], client: openai.OpenAI, error: Exception
) -> None:
    scripted_client[1].generator_engine.refusal = error
    with pytest.raises(openai.InternalServerError) as caught:
        client.with_options(max_retries=0).completions.create(model="story", prompt="a")

    assert caught.value.response.json()["error"]["message"]
    assert "a bug" not in str(caught.value) and "Traceback" not in str(caught.value)


def test_what_is_refused_once_is_answered_in_the_end(
    scripted_client: tuple[str, World], client: openai.OpenAI
) -> None:
    _, world = scripted_client
    refusals: list[Exception] = [Overloaded(9, retry_after_seconds=0.15)] * 2

    def check_room(*_: Any) -> None:
        if refusals:
            raise refusals.pop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.generator_engine, "check_room", check_room)
        began = time.monotonic()
        stream = client.chat.completions.create(model="story", messages=TALK, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert text == " once upon a time" and 0.3 <= time.monotonic() - began < 3


def test_wrong_requests_name_their_field(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.completions.create(model="story", prompt="a", extra_body={"wings": 2})
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody", messages=TALK)

    assert (bad.value.param, bad.value.type) == ("wings", "invalid_request_error")
    assert (unknown.value.param, unknown.value.code) == ("model", "model_not_found")


def test_late_failures_raise(scripted_client: tuple[str, World], client: openai.OpenAI) -> None:
    _, world = scripted_client
    world.generator_engine.fails_after = 3
    try:
        with pytest.raises(openai.APIError, match="engine failed") as caught:
            list(client.chat.completions.create(model="story", messages=TALK, stream=True))
    finally:
        world.generator_engine.fails_after = None

    assert not isinstance(caught.value, openai.APIStatusError), "its answer had begun"
