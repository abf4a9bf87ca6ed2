"""Races over HTTP, with small servers of known speed."""

import asyncio
import os
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import click
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from loadtest.bench import compare_http
from loadtest.bench.compare_engines import SkippedPeer
from loadtest.bench.compare_http import (
    arrive,
    compete_over_http,
    measure_streams,
    measure_sustained_rate,
    number_bodies,
)
from loadtest.bench.compare_inputs import cut_prompts
from loadtest.bench.compare_report import ComparisonReport
from loadtest.bench.compare_servers import ComparedServer
from loadtest.bench.compare_workloads import WORKLOADS
from loadtest.bench.peers.ctranslate2_server import application

pytestmark = pytest.mark.servers

CORES = os.sched_getaffinity(0)
ABOUT = ("bundle", "precision", "cores", "processor", "rounds", "command")

# Answers one request after the other, each after so many seconds.
SLOW = """
import asyncio, sys
from aiohttp import web
lock = asyncio.Lock()

async def answer(request):
    async with lock:
        await asyncio.sleep(float(sys.argv[2]))
    return web.json_response({})

app = web.Application()
app.add_routes([web.post("/translate", answer)])
app.add_routes([web.get("/health", lambda request: asyncio.sleep(0, web.Response()))])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


def server(folder: Path, name: str, seconds: float) -> ComparedServer:
    script = folder / "slow.py"
    script.write_text(SLOW)
    return ComparedServer(
        name, f"{seconds} s", (sys.executable, str(script), "{port}", str(seconds)), "/health"
    )


def test_the_sustained_rate_is_the_last_that_is_answered_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_http, "WARM_UP_SECONDS", 0.2)
    ours, slow, slower = (
        server(tmp_path, *each) for each in (("attendant", 0.001), ("x", 0.1), ("x", 0.6))
    )
    measure = measure_sustained_rate(["a dog."], {}, [4, 25], 1.0)
    row = compete_over_http(
        WORKLOADS["http"], "sentences/s", measure, ours, [slower, slow], 1, CORES
    )
    assert row.theirs.setting == "0.1 s"
    [raw] = row.theirs.raw
    assert [each["rate"] for each in raw] == [4, 25]
    assert raw[1]["p95"] > 1
    [theirs] = row.theirs.rates
    assert 1 < theirs < 10 < row.ours.rates[0]
    with pytest.raises(SkippedPeer, match="sustained no rate"):
        compete_over_http(WORKLOADS["http"], "sentences/s", measure, ours, [slower], 1, CORES)


# Streams a completion: reads a prompt for so many seconds, then sends a token after another.
STREAMING = """
import asyncio, json, sys
from aiohttp import web
prefill_seconds, token_seconds = map(float, sys.argv[2:4])
ballast = bytearray(50 << 20)
prompts = []

async def complete(request):
    body = await request.json()
    num_cached = sum(prompt[:4] == body["prompt"][:4] for prompt in prompts)
    prompts.append(body["prompt"])
    response = web.StreamResponse()
    await response.prepare(request)

    async def send(texts, **more):
        chunk = {"choices": [{"text": text} for text in texts], **more}
        await response.write(f"data: {json.dumps(chunk)}\\n\\n".encode())

    await send([""])
    await asyncio.sleep(prefill_seconds)
    num_tokens = min(body["max_tokens"], int(sys.argv[4]))
    for number in range(num_tokens):
        await send(["a"])
        await asyncio.sleep(token_seconds)
    details = {"prompt_tokens_details": {"cached_tokens": num_cached}}
    usage = {"completion_tokens": num_tokens, "prompt_tokens": len(body["prompt"]), **details}
    await send([], usage=usage)
    await response.write(b"data: [DONE]\\n\\n")
    return response

app = web.Application()
app.add_routes([web.post("/v1/completions", complete)])
app.add_routes([web.get("/health", lambda request: asyncio.sleep(0, web.Response()))])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


def streaming_server(folder: Path, prefill_seconds: float, most_tokens: int = 99) -> ComparedServer:
    script = folder / "streaming.py"
    script.write_text(STREAMING)
    options = (str(prefill_seconds), "0.02", str(most_tokens))
    command = (sys.executable, str(script), "{port}", *options)
    return ComparedServer("llama.cpp", "", command, "/health")


def test_users_are_compared_by_tokens_first_tokens_and_memory(tmp_path: Path) -> None:
    prompts = partial(cut_prompts, range(1000), 30)
    measure = measure_streams(prompts, {"max_tokens": 5}, num_users=2, num_each=2)
    ours, theirs = streaming_server(tmp_path, 0.1), streaming_server(tmp_path, 0.4)
    row = compete_over_http(WORKLOADS["http-8"], "tokens/s", measure, ours, [theirs], 1, CORES)
    assert 20 * 0.3 < row.ours.rates[0] < 20 / 0.4
    assert 1.5 < row.ratio.median < 3
    assert 0.1 < row.ours.first_seconds[0] < 0.4 < row.theirs.first_seconds[0]
    assert 10 < row.ours.decode_rates[0] < 50
    assert row.ours.memory[0].total_mib >= row.ours.memory[0].model_mib > 50
    completions = row.theirs.raw[0]["completions"]
    assert [(each["num_prompt_tokens"], each["num_cached"]) for each in completions] == [
        (30, 0)
    ] * 4
    table = ComparisonReport({**dict.fromkeys(ABOUT, ""), "versions": {}}, [row], {}).as_markdown()
    [head, _, line] = [line for line in table.splitlines() if line.startswith("|")]
    assert "first token, ms | tokens/s of a stream after it | memory of the model's" in head
    assert "per CPU second" not in head
    assert head.count("|") == line.count("|")


def test_a_server_that_ends_early_is_not_compared(tmp_path: Path) -> None:
    prompts = partial(cut_prompts, range(1000), 30)
    measure = measure_streams(prompts, {"max_tokens": 12}, num_users=1, num_each=1)
    with (
        streaming_server(tmp_path, 0, most_tokens=9).running(CORES) as running,
        pytest.raises(click.ClickException, match="sent 9 of 12 tokens"),
    ):
        measure(running.url)


def test_prompts_have_one_length_and_no_beginning_in_common() -> None:
    prompts = list(islice(cut_prompts(range(500), 40), 200))
    assert {len(prompt) for prompt in prompts} == {40}
    assert len({prompt[0] for prompt in prompts}) == 200


def test_a_server_whose_packages_are_missing_is_told_from_one_that_fails(tmp_path: Path) -> None:
    for code, error in ((3, SkippedPeer), (1, click.ClickException)):
        command = (sys.executable, "-c", f"raise SystemExit({code})")
        with pytest.raises(error), ComparedServer("x", "", command, "/").running(CORES):
            pass


async def test_requests_that_fail_are_counted() -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=503)

    made = web.Application()
    made.add_routes([web.post("/", refuse)])
    async with TestServer(made) as running:
        bodies: Iterator[dict[str, str]] = number_bodies(["a"], lambda text: {"q": text})
        found = await arrive(str(running.make_url("/")), bodies, 20, 0.3)
    assert found.num_failed > 0
    assert not found.is_sustained(1.0)


class Upper:
    """Translates into capitals, and keeps what came as one batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def translate(self, texts: list[str], max_new_tokens: int) -> list[str]:
        self.batches.append(texts)
        if "error" in texts:
            raise ValueError("no")
        return [text.upper() for text in texts]


async def test_the_reference_server_makes_batches_of_what_waits() -> None:
    translator = Upper()
    async with TestServer(application(web, translator, 1)) as running:  # type: ignore[arg-type]
        url = running.make_url("/translate")
        async with aiohttp.ClientSession() as session:

            async def ask(text: str) -> SimpleNamespace:
                async with session.post(url, json={"q": text, "max_new_tokens": 4}) as answer:
                    body = await answer.json() if answer.ok else {}
                    return SimpleNamespace(status=answer.status, **body)

            answers = await asyncio.gather(*map(ask, "abcdefgh"))
            failed = await ask("error")
            again = await ask("fine")
    assert [answer.translatedText for answer in answers] == [*"ABCDEFGH"]
    assert len(translator.batches) < 10
    assert (failed.status, again.translatedText) == (500, "FINE")
