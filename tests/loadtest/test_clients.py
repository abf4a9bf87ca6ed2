"""Both clients over real HTTP: what they send, what they time, what they make of bad answers."""

import time
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
import pytest_asyncio

from loadtest.clients import AnswerError, CompletionsClient, TranslateClient, generated_tokens
from tests.loadtest.fake_server import FIRST_TOKEN_SECONDS, TOKEN_SECONDS, FakeServer, serving


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(FakeServer()) as url:
        yield url


@pytest_asyncio.fixture
async def session(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=0.5)) as session:
        yield session


def translate_client(session: aiohttp.ClientSession) -> TranslateClient:
    return TranslateClient(session, "en", "fr", None)


async def test_a_translation_is_one_sentence(session: aiohttp.ClientSession) -> None:
    answer = await translate_client(session).send("hello")
    assert (answer.sentences, answer.tokens, answer.first_token) == (1, None, None)


async def test_a_completion_times_its_first_token(session: aiohttp.ClientSession) -> None:
    start = time.perf_counter()
    answer = await CompletionsClient(session, "shout", max_tokens=8).send("Once")
    total = time.perf_counter() - start
    assert answer.tokens == 8
    assert answer.first_token is not None
    assert FIRST_TOKEN_SECONDS <= answer.first_token - start <= total - 7 * TOKEN_SECONDS


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("busy", "HTTP 429"),
        ("html", "bad answer"),
        ("empty", "bad answer"),
        ("slow", "timeout"),
    ],
)
async def test_a_bad_translation_is_named(
    session: aiohttp.ClientSession, text: str, kind: str
) -> None:
    with pytest.raises(AnswerError) as caught:
        await translate_client(session).send(text)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("prompt", "kind"), [("late error", "error in stream"), ("cut", "cut stream")]
)
async def test_a_bad_stream_is_named(
    session: aiohttp.ClientSession, prompt: str, kind: str
) -> None:
    with pytest.raises(AnswerError) as caught:
        await CompletionsClient(session, "shout", max_tokens=1).send(prompt)
    assert caught.value.kind == kind


async def test_a_server_that_is_gone_is_a_connection_error() -> None:
    async with aiohttp.ClientSession("http://127.0.0.1:1/") as session:
        with pytest.raises(AnswerError) as caught:
            await translate_client(session).send("hello")
        assert await generated_tokens(session, None) is None
    assert caught.value.kind == "connection"


async def test_the_server_counts_generated_tokens(session: aiohttp.ClientSession) -> None:
    before = await generated_tokens(session, "shout")
    await translate_client(session).send("hello")
    after = await generated_tokens(session, "shout")
    assert before is not None
    assert after == before + 7
    assert await generated_tokens(session, None) == after + 5
    assert await generated_tokens(session, "unknown") is None
