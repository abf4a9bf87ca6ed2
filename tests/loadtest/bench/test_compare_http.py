"""Races over HTTP, with small servers of known speed."""

import asyncio
import os
import sys
from collections.abc import Iterator
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
    ComparedServer,
    arrive,
    compete_over_http,
    measure_streams,
    measure_sustained_rate,
    number_bodies,
)
from loadtest.bench.compare_workloads import WORKLOADS
from loadtest.bench.peers.ctranslate2_server import application

pytestmark = pytest.mark.servers

CORES = os.sched_getaffinity(0)

# Answers one request after the other, each after so many seconds.
SLOW = """
import asyncio, sys
from aiohttp import web
lock = asyncio.Lock()

async def answer(request):
    async with lock:
        await asyncio.sleep(float(sys.argv[2]))
    return web.json_response({"usage": {"completion_tokens": 10}})

app = web.Application()
app.add_routes([web.post("/translate", answer), web.post("/v1/completions", answer)])
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


def test_streams_count_the_tokens_of_all_users(tmp_path: Path) -> None:
    with server(tmp_path, "x", 0.02).running(CORES) as url:
        measured = measure_streams(["a dog"], {}, users=2)(url)
    assert 10 / 0.04 * 0.3 < measured.rate < 10 / 0.02


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
