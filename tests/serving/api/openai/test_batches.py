"""`/v1/files` and `/v1/batches`, asked by the official client."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from serving.errors import Overloaded
from serving.storage.state import State
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World


@pytest.fixture
async def batch_world(tokenizer: Tokenizer, state: State) -> AsyncIterator[World]:
    """Its state is its own, and its worker runs."""
    async with (
        made_world(tokenizer, access={"state": state}) as world,
        world.app.router.lifespan_context(world.app),
    ):
        yield world


@pytest.fixture
def official(batch_world: World) -> openai.AsyncOpenAI:
    client: Any = batch_world.client
    return openai.AsyncOpenAI(
        base_url="http://attendant/v1", api_key="x", http_client=client, max_retries=0
    )


def lines(*bodies: Any, url: str = "/v1/completions") -> bytes:
    rows = [
        {"custom_id": f"{n}", "method": "POST", "url": url, "body": body}
        for n, body in enumerate(bodies)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


async def wait_until_ended(official: openai.AsyncOpenAI, batch_id: str) -> Any:
    for _ in range(500):
        batch = await official.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        await asyncio.sleep(0.02)
    raise AssertionError(batch)


async def results(official: openai.AsyncOpenAI, file_id: str) -> list[Any]:
    content = await official.files.content(file_id)
    return [json.loads(text) for text in content.text.splitlines()]


async def test_from_upload_to_results(official: openai.AsyncOpenAI, batch_world: World) -> None:
    batch_world.generator_engine.refusal = None
    content = lines(
        {"model": "story", "prompt": "a", "max_tokens": 40},
        {"model": "shout", "prompt": "b"},
        {"model": "story", "prompt": "a", "stream": True},
        {"model": "story", "prompt": "a", "nonsense": 1},
        {"prompt": "a"},
    )
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await official.batches.create(
        input_file_id=file.id,
        endpoint="/v1/completions",
        completion_window="24h",
        metadata={"for": "test"},
    )
    batch = await wait_until_ended(official, batch.id)
    assert batch.output_file_id and batch.error_file_id and batch.request_counts
    good = await results(official, batch.output_file_id)
    bad = await results(official, batch.error_file_id)

    assert (batch.status, batch.metadata) == ("completed", {"for": "test"})
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 3)
    texts = [item["response"]["body"]["choices"][0]["text"] for item in good]
    assert texts == [" once upon a time", "B"]
    params = [item["response"]["body"]["error"]["param"] for item in bad]
    assert params == ["stream", "nonsense", "model"]
    requests = [*batch_world.generator_engine.requests, *batch_world.translator_engine.requests]
    assert {request.priority for request in requests} == {1000}


async def test_null_is_no_priority(official: openai.AsyncOpenAI, batch_world: World) -> None:
    content = lines(
        {"model": "story", "prompt": "a", "priority": None},
        {"model": "story", "prompt": "a", "priority": 2_000},
    )
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await official.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )
    await wait_until_ended(official, batch.id)

    requests = batch_world.generator_engine.requests
    assert sorted(request.priority for request in requests) == [1_000, 2_000]


async def test_it_waits_where_others_would_be_refused(
    official: openai.AsyncOpenAI, batch_world: World
) -> None:
    batch_world.generator_engine.refusal = Overloaded(9, retry_after_seconds=0.1)
    asyncio.get_running_loop().call_later(
        0.3, setattr, batch_world.generator_engine, "refusal", None
    )
    content = lines({"model": "story", "prompt": "a"})
    file = await official.files.create(file=("in.jsonl", content), purpose="batch")
    batch = await official.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )

    assert (await wait_until_ended(official, batch.id)).request_counts.completed == 1


async def test_lists_and_what_is_deleted(official: openai.AsyncOpenAI) -> None:
    files = [
        await official.files.create(file=(f"{n}.jsonl", b"{}"), purpose="batch") for n in range(3)
    ]
    batch = await official.batches.create(
        input_file_id=files[0].id, endpoint="/v1/completions", completion_window="24h"
    )
    failed = await wait_until_ended(official, batch.id)
    await official.files.delete(files[0].id)
    listed = [file.id async for file in official.files.list(limit=1)]
    oldest_first = [file.id async for file in official.files.list(limit=1, order="asc")]

    assert failed.status == "failed" and failed.errors.data[0].line == 1
    assert listed == [files[2].id, files[1].id] and oldest_first == listed[::-1]
    assert [item.id async for item in official.batches.list()] == [batch.id]
    with pytest.raises(openai.NotFoundError):
        await official.files.retrieve(files[0].id)
    with pytest.raises(openai.BadRequestError, match="it is failed"):
        await official.batches.cancel(batch.id)


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "param"),
    [
        ("POST", "/files", {"files": {"file": ("a", b"{}")}}, 400, "purpose"),
        ("POST", "/files", {"data": {"purpose": "batch"}}, 400, "body"),
        ("POST", "/files", {"json": {}}, 400, "body"),
        (
            "POST",
            "/files",
            {"files": {"file": ("a", b"{}")}, "data": {"purpose": "fine-tune"}},
            400,
            "purpose",
        ),
        ("GET", "/files/file-x", {}, 404, "file_id"),
        ("GET", "/files/file-x/content", {}, 404, "file_id"),
        ("GET", "/files?limit=x", {}, 400, "limit"),
        ("GET", "/files?order=up", {}, 400, "order"),
        ("GET", "/files?page=2", {}, 400, "page"),
        ("GET", "/batches?order=asc", {}, 400, "order"),
        ("GET", "/batches/x", {}, 404, "batch_id"),
        ("POST", "/batches/x/cancel", {}, 404, "batch_id"),
        ("POST", "/batches", {"json": {"endpoint": "/v1/models"}}, 400, "input_file_id"),
        (
            "POST",
            "/batches",
            {
                "json": {
                    "input_file_id": "file-x",
                    "endpoint": "/v1/completions",
                    "completion_window": "24h",
                }
            },
            404,
            "input_file_id",
        ),
        (
            "POST",
            "/batches",
            {
                "content": b'{"input_file_id": "\\ud800", "endpoint": "/v1/completions",'
                b' "completion_window": "24h"}'
            },
            404,
            "input_file_id",
        ),
    ],
)
async def test_refusals(
    batch_world: World, method: str, path: str, options: Any, status: int, param: str
) -> None:
    response = await batch_world.client.request(method, f"/v1{path}", **options)

    assert response.status_code == status, response.text
    assert response.json()["error"]["param"] == param
