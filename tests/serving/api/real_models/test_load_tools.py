"""The load of `vllm bench serve` and of guidellm: every request ends as it should."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any

import aiohttp
import numpy as np
import pytest

from tests.serving.api.openai.listening import listening
from tests.serving.api.real_models.applications import app_over
from tests.serving.api.real_models.random_llama import NAME, make_llama

NUM_REQUESTS = 24
RATE = 60.0  # requests a second
NUM_TOKENS = 12


@dataclass(frozen=True)
class Served:
    url: str
    tokenizer: Path


@dataclass
class Answer:
    """Holds what a tool adds up of a stream."""

    status: int = 0
    is_done: bool = False
    pieces: list[str] = field(default_factory=list)
    usages: list[Any] = field(default_factory=list)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    _, tokenizer, bundle = make_llama(tmp_path_factory.mktemp("load"))
    with listening(lambda: app_over(bundle)) as url:
        yield Served(url, tokenizer)


def of_vllm(prompt: str) -> tuple[str, dict[str, Any]]:
    return "completions", {
        "model": NAME,
        "prompt": prompt,
        "repetition_penalty": 1.0,
        "max_tokens": NUM_TOKENS,
        "logprobs": None,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
    }


def of_guidellm(prompt: str) -> tuple[str, dict[str, Any]]:
    return "completions", {
        "model": NAME,
        "prompt": prompt,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "max_tokens": NUM_TOKENS,
        "stop": None,
        "ignore_eos": True,
    }


async def ask(session: aiohttp.ClientSession, path: str, body: Any) -> Answer:
    async with session.post(f"/v1/{path}", json=body) as response:
        answer = Answer(response.status)
        async for line in response.content:
            text = line.decode().strip().removeprefix("data: ")
            if text == "[DONE]":
                answer.is_done = True
            elif text.startswith("{"):
                event = json.loads(text)
                answer.pieces += [choice["text"] for choice in event["choices"]]
                answer.usages.append(event["usage"])
    return answer


@pytest.mark.parametrize("shape", [of_vllm, of_guidellm])
async def test_all_requests_end(served: Served, shape: Any) -> None:
    """Random prompts that come at random times, as a Poisson process has them."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 40, NUM_REQUESTS)
    prompts = ["".join(map(chr, random.integers(32, 900, length))) for length in lengths]
    async with aiohttp.ClientSession(served.url) as session:
        asking = []
        for prompt in prompts:
            await asyncio.sleep(random.exponential(1 / RATE))
            asking.append(asyncio.create_task(ask(session, *shape(prompt))))
        answers = await asyncio.gather(*asking)

    assert {answer.status for answer in answers} == {200}
    assert all(answer.is_done and answer.pieces for answer in answers)
    assert {answer.usages[-1]["completion_tokens"] for answer in answers} == {NUM_TOKENS}
    counts = [answer.usages[-1]["prompt_tokens"] for answer in answers]
    assert counts == [len(prompt.encode()) + 1 for prompt in prompts]


async def test_they_find_the_model_by_themselves(served: Served) -> None:
    async with aiohttp.ClientSession(served.url) as session:
        health = await session.get("/health")
        models = await (await session.get("/v1/models")).json()

    assert health.status == 200
    assert (models["data"][0]["id"], models["data"][0]["root"]) == (NAME, NAME)


@pytest.mark.clients
@pytest.mark.timeout(600)
def test_guidellm(served: Served, tmp_path: Path) -> None:
    if (program := which("guidellm")) is None:
        pytest.skip("guidellm is not installed")
    report = tmp_path / "report.json"
    options = {
        "backend": f"kind=openai_http,target={served.url},model={NAME}"
        ",request_format=/v1/completions",
        "profile": "kind=poisson,rate=8",
        "constraint": f"kind=max_requests,count={NUM_REQUESTS}",
        "tokenizer": f"kind=hf_auto,model={served.tokenizer}",
        "data": f"kind=synthetic_text,prompt_tokens=20,output_tokens={NUM_TOKENS}",
        "output": f"kind=json,path={report}",
    }
    command = [program, "run", "--disable-console"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)

    assert run.returncode == 0, run.stderr[-3000:]
    [benchmark] = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (NUM_REQUESTS, 0)
