"""Batches of a real server, as OpenAI's client sends them: lines for models of several groups."""

import json
import time
from typing import Any

import httpx
import openai
import pytest

ENDED = ("completed", "failed", "expired", "cancelled")
ASKED: list[dict[str, Any]] = [
    {"model": "llama-en", "prompt": "It was", "max_tokens": 8, "temperature": 1, "seed": 3},
    {"model": "far-llama", "prompt": "It was", "max_tokens": 8, "temperature": 1, "seed": 3},
    {
        "model": "llama-en",
        "prompt": "a",
        "max_tokens": 1,
        "logprobs": 2,
        "echo": True,
        "temperature": 0,
    },
    {"model": "transformer-en-fr", "prompt": "A dog runs."},
    {"model": "far-llama", "prompt": "a", "max_tokens": 100_000},
]


def lines(bodies: list[dict[str, Any]]) -> bytes:
    rows = [
        {"custom_id": f"line {n}", "method": "POST", "url": "/v1/completions", "body": body}
        for n, body in enumerate(bodies)
    ]
    return "\n".join(map(json.dumps, rows)).encode()


def ended(client: openai.OpenAI, batch_id: str) -> Any:
    deadline = time.monotonic() + 120
    while (batch := client.batches.retrieve(batch_id)).status not in ENDED:
        assert time.monotonic() < deadline, batch
        time.sleep(0.2)
    return batch


def results(client: openai.OpenAI, file_id: str) -> dict[str, Any]:
    rows = map(json.loads, client.files.content(file_id).text.splitlines())
    return {row["custom_id"]: row["response"] for row in rows}


def test_a_batch_says_what_its_lines_say_alone(
    official: openai.OpenAI, client: httpx.Client
) -> None:
    file = official.files.create(file=("in.jsonl", lines(ASKED)), purpose="batch")
    begun = official.batches.create(
        input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
    )
    batch = ended(official, begun.id)
    good = results(official, batch.output_file_id)
    bad = results(official, batch.error_file_id)

    assert (batch.status, len(good), [*bad]) == ("completed", 4, ["line 4"])
    for name, response in {**good, **bad}.items():
        alone = client.post("/v1/completions", json=ASKED[int(name[5:])])
        assert response["status_code"] == alone.status_code
        for told in ("choices", "usage", "system_fingerprint", "error"):
            assert response["body"].get(told) == alone.json().get(told)


async def test_an_asynchronous_client_cancels(server_url: str) -> None:
    body = {"model": "far-llama", "prompt": "a", "max_tokens": 2000, "ignore_eos": True, "n": 16}
    async with openai.AsyncOpenAI(base_url=f"{server_url}/v1", api_key="x") as client:
        file = await client.files.create(file=("in.jsonl", lines([body] * 50)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/completions", completion_window="24h"
        )
        with pytest.raises(openai.BadRequestError, match="a batch reads it"):
            await client.files.delete(file.id)
        cancelled = await client.batches.cancel(batch.id)
    with openai.OpenAI(base_url=f"{server_url}/v1", api_key="x") as official:
        after = ended(official, batch.id)
        deleted = official.files.delete(file.id)

    assert (cancelled.status, after.status) == ("cancelling", "cancelled")
    assert after.request_counts.total in (0, 50) and deleted.deleted
