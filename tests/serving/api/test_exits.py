"""Whatever a handler raises: the protocol's own shape for the client, a traceback for the log."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest

from serving.requests.request import Event, GenerationRequest
from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}
TRANSLATE = ("/translate", {"q": "a", **EN_FR})
SCORE = ("/score", {"q": "a", "translations": "A", **EN_FR})
COMPLETE = ("/v1/completions", {"model": "story", "prompt": "p"})
CHAT = ("/v1/chat/completions", {"model": "story", "messages": [{"role": "user", "content": "p"}]})
PLAIN = {"error": "internal error"}
OPENAI = {
    "error": {"message": "internal error", "type": "server_error", "param": None, "code": None}
}


class PanicException(BaseException):
    """As the Rust libraries raise: no Exception."""


def breaking(world: World, error: BaseException) -> None:
    def script(request: GenerationRequest) -> list[int]:
        raise error

    world.translator_engine.script = world.generator_engine.script = script


@pytest.mark.parametrize("error", [ValueError("secret"), PanicException("secret")])
@pytest.mark.parametrize(
    ("asked", "body"),
    [(TRANSLATE, PLAIN), (SCORE, PLAIN), (COMPLETE, OPENAI), (CHAT, OPENAI)],
    ids=["translate", "score", "completions", "chats"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_nobody_expected(
    chat_world: World,
    caplog: pytest.LogCaptureFixture,
    asked: tuple[str, dict[str, Any]],
    body: dict[str, Any],
    error: BaseException,
    stream: bool,
) -> None:
    path, fields = asked
    streamed = {"stream": True} if stream and body is OPENAI else {}
    breaking(chat_world, error)

    response = await chat_world.client.post(path, json={**fields, **streamed})

    assert (response.status_code, response.json()) == (500, body)
    [record] = [item for item in caplog.records if item.levelno == logging.ERROR]
    assert response.headers["x-request-id"] in record.getMessage()
    assert path in record.getMessage()
    assert record.exc_info is not None and record.exc_info[1] is error
    assert outcomes(chat_world) == {"failed": 1}


@pytest.mark.parametrize("error", [ValueError("secret"), PanicException("secret")])
@pytest.mark.parametrize("asked", [COMPLETE, CHAT], ids=["completions", "chats"])
async def test_what_nobody_expected_in_the_middle_of_a_stream(
    chat_world: World,
    caplog: pytest.LogCaptureFixture,
    asked: tuple[str, dict[str, Any]],
    error: BaseException,
) -> None:
    engine = chat_world.generator_engine
    whole = engine.generate

    async def raise_error(request: GenerationRequest) -> AsyncGenerator[Event, None]:
        events = whole(request)
        yield await anext(events)
        yield await anext(events)
        raise error

    engine.generate = raise_error  # type: ignore[method-assign]
    path, fields = asked

    response = await chat_world.client.post(path, json={**fields, "stream": True})

    *pieces, last = [line for line in response.text.split("\n\n") if line]
    assert (response.status_code, len(pieces) > 0) == (200, True)
    assert json.loads(last.removeprefix("data: ")) == OPENAI
    [record] = [item for item in caplog.records if item.levelno == logging.ERROR]
    assert response.headers["x-request-id"] in record.getMessage()
    assert outcomes(chat_world) == {"failed": 1}


@pytest.mark.parametrize(
    ("method", "path", "status", "is_plain"),
    [
        ("GET", "/nowhere", 404, True),
        ("GET", "/v1", 404, True),
        ("GET", "/v1x/models", 404, True),
        ("GET", "/score/nowhere", 404, True),
        ("GET", "/score", 405, True),
        ("GET", "/detect", 405, True),
        ("PUT", "/ready", 405, True),
        ("GET", "/v1/nowhere", 404, False),
        ("GET", "/v1/completions", 405, False),
        ("PUT", "/v1/models", 405, False),
    ],
)
async def test_paths_and_methods_that_are_not_there(
    world: World, method: str, path: str, status: int, is_plain: bool
) -> None:
    response = await world.client.request(method, path)

    assert response.status_code == status
    assert isinstance(response.json()["error"], str) == is_plain


async def test_a_failure_of_the_metrics_has_a_shape_too(world: World) -> None:
    def raise_error() -> bytes:
        raise PanicException("secret")

    world.metrics.exposition = raise_error  # type: ignore[method-assign]

    response = await world.client.get("/metrics")

    assert (response.status_code, response.json()) == (500, PLAIN)


async def test_a_page_may_read_a_failure(world: World) -> None:
    breaking(world, ValueError("secret"))

    response = await world.client.post("/translate", json=TRANSLATE[1], headers={"Origin": "a"})

    assert response.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_what_ends_tasks_and_processes_is_nobodys_failure(
    world: World, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    breaking(world, error)

    with pytest.raises(type(error)):
        await world.client.post("/translate", json=TRANSLATE[1])

    assert caplog.records == []


async def test_a_request_has_the_id_that_its_client_gave_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    breaking(world, ValueError("secret"))

    await world.client.post("/translate", json=TRANSLATE[1], headers={"X-Request-ID": "mine-1"})

    assert "mine-1" in caplog.text


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/languages", "/v1/models"])
async def test_head_is_get_without_its_body(world: World, path: str) -> None:
    whole = await world.client.get(path)

    head = await world.client.head(path)

    assert (head.status_code, head.content) == (whole.status_code, b"")
    for name in ("content-type", "content-length"):
        assert head.headers[name] == whole.headers[name]


async def test_head_of_what_is_not_got(world: World) -> None:
    world.readiness[0] = False

    assert (await world.client.head("/ready")).status_code == 503
    assert (await world.client.head("/nowhere")).status_code == 404
    refused = await world.client.head("/detect")
    assert (refused.status_code, refused.content) == (405, b"")


async def test_methods_that_are_allowed_are_told(world: World) -> None:
    response = await world.client.put("/health")

    assert response.status_code == 405
    assert {*response.headers["allow"].split(", ")} == {"GET", "HEAD"}


@pytest.mark.parametrize(
    ("content_type", "content"),
    [
        ("multipart/form-data", b"abc"),
        ("multipart/form-data; boundary=x", b"abc"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\na"),
        ("multipart/form-data; boundary=x; charset=none", b"--x--"),
        ("multipart/form-data; boundary=", b"--\r\n"),
        ("application/x-www-form-urlencoded", b"q=%ff"),
        ("application/json", b"\xff"),
    ],
)
async def test_a_broken_body_is_its_clients_mistake(
    world: World, content_type: str, content: bytes
) -> None:
    headers = {"Content-Type": content_type}

    response = await world.client.post("/translate", content=content, headers=headers)

    assert response.status_code == 400
    assert isinstance(response.json()["error"], str)
    assert outcomes(world) == {"refused": 1}


def outcomes(world: World) -> dict[str, float]:
    return {
        sample.labels["outcome"]: sample.value
        for family in world.metrics.registry.collect()
        if family.name == "attendant_requests"
        for sample in family.samples
    }


async def test_an_aborted_answer_is_no_whole_one(world: World) -> None:
    """Once an answer has begun, all that is left is to break it off."""
    from starlette.responses import StreamingResponse

    async def raise_error() -> AsyncGenerator[bytes, None]:
        yield b"begun"
        raise PanicException("secret")

    world.app.add_route("/broken", lambda request: StreamingResponse(raise_error()))
    transport = httpx.ASGITransport(world.app)

    async with httpx.AsyncClient(transport=transport, base_url="http://attendant") as client:
        with pytest.raises(PanicException):
            await client.get("/broken")
    world.app.router.routes.pop()  # other tests use the application too
