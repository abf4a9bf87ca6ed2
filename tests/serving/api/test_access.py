"""Keys, the access log, and counters that add up, in every protocol."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}
TRANSLATE = ("/translate", {"q": "a", **EN_FR})
SCORE = ("/score", {"q": "a", "translations": "A", **EN_FR})
COMPLETE = ("/v1/completions", {"model": "story", "prompt": "p"})
BEARER = {"Authorization": "Bearer secret"}


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    entries = (
        KeyEntry(name="alice", sha256=hash_key("secret")),
        KeyEntry(name="slow", sha256=hash_key("slow"), requests_per_second=0.001),
    )
    write_keys(tmp_path / "keys.json", entries)
    return KeyRing(tmp_path / "keys.json", {})


@pytest.mark.parametrize(
    ("asked", "status", "shape"),
    [(TRANSLATE, 403, str), (SCORE, 401, str), (COMPLETE, 401, dict)],
)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "x"}])
async def test_without_a_key_nothing_is_done(
    tokenizer: Tokenizer,
    ring: KeyRing,
    asked: tuple[str, dict[str, Any]],
    status: int,
    shape: type,
    headers: dict[str, str],
) -> None:
    path, body = asked
    async with made_world(tokenizer, access={"keys": ring}) as world:
        response = await world.client.post(path, json=body, headers=headers)

        assert response.status_code == status
        assert isinstance(response.json()["error"], shape)
        assert ("www-authenticate" in response.headers) == (status == 401)
        assert not world.translator_engine.requests + world.generator_engine.requests
        assert (await world.client.post(path, json=body, headers=BEARER)).status_code == 200


async def test_openai_clients_are_told_their_own_code(tokenizer: Tokenizer, ring: KeyRing) -> None:
    async with made_world(tokenizer, access={"keys": ring}) as world:
        error = (await world.client.get("/v1/models")).json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
        assert (await world.client.get("/v1/models", headers=BEARER)).status_code == 200


@pytest.mark.parametrize("sent", ["json", "data", "params"])
async def test_libretranslates_field_is_a_key(
    tokenizer: Tokenizer, ring: KeyRing, sent: str
) -> None:
    async with made_world(tokenizer, access={"keys": ring}) as world:
        for key, status in (("secret", 200), ("wrong", 403)):
            asked: dict[str, Any] = {sent: {**TRANSLATE[1], "api_key": key}}
            assert (await world.client.post("/translate", **asked)).status_code == status


async def test_a_body_is_not_read_for_who_shows_no_key(tokenizer: Tokenizer, ring: KeyRing) -> None:
    async def body() -> Any:
        yield b"{"
        raise AssertionError("it was read")

    async with made_world(tokenizer, access={"keys": ring}) as world:
        assert (await world.client.post("/v1/completions", content=body())).status_code == 401


@pytest.mark.parametrize(
    ("path", "status"),
    [("/health", 200), ("/ready", 200), ("/languages", 200), ("/metrics", 401), ("/docs", 200)],
)
async def test_what_is_open(tokenizer: Tokenizer, ring: KeyRing, path: str, status: int) -> None:
    access = {"keys": ring, "metrics_need_key": True}
    async with made_world(tokenizer, access=access) as world:
        assert (await world.client.get(path)).status_code == status
        assert (await world.client.get(path, headers=BEARER)).status_code == 200


async def test_a_rate_is_held_in_the_protocols_shape(tokenizer: Tokenizer, ring: KeyRing) -> None:
    slow = {"Authorization": "Bearer slow"}
    async with made_world(tokenizer, access={"keys": ring}) as world:
        path, body = COMPLETE
        assert (await world.client.post(path, json=body, headers=slow)).status_code == 200
        refused = await world.client.post(path, json=body, headers=slow)

        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1000")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await world.client.post(path, json=body, headers=BEARER)).status_code == 200
        assert ends(world)["openai", "limited"] == 1


async def test_a_line_for_each_request_and_no_text(tokenizer: Tokenizer, ring: KeyRing) -> None:
    lines: list[str] = []
    access = {"keys": ring, "write_access": lines.append}
    async with made_world(tokenizer, access=access) as world:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        ours = {**BEARER, "X-Request-ID": "mine", "traceparent": trace}
        body = {"q": "hush", **EN_FR}
        await world.client.post("/translate?q=hush", json=body, headers=ours)
        await world.client.post("/translate", json={"q": "hush", "api_key": "hush", **EN_FR})
        await world.client.get("/nowhere?q=hush")
        world.translator_engine.failure = ValueError("hush")
        world.translator_engine.fails_after = 0
        await world.client.post("/translate", json=body, headers=BEARER)

    records = [json.loads(line) for line in lines]
    description = ("key", "method", "path", "protocol", "model", "status", "outcome")
    assert [tuple(record[name] for name in description) for record in records] == [
        ("alice", "POST", "/translate", "libretranslate", "shout", 200, "success"),
        ("", "POST", "/translate", "libretranslate", "", 403, "refused"),
        ("", "GET", "/nowhere", "", "", 404, ""),
        ("alice", "POST", "/translate", "libretranslate", "shout", 500, "failed"),
    ]
    assert (records[0]["request_id"], records[0]["traceparent"]) == ("mine", trace)
    assert all(record["duration_ms"] > 0 and record["client"] for record in records)
    assert "hush" not in "".join(lines) and "secret" not in "".join(lines)
    [first, *_] = world.translator_engine.requests
    assert first.request_id.startswith("mine-")


@pytest.mark.parametrize(("path", "num_lines"), [("/ready", 0), ("/v1/models", 1)])
async def test_a_health_check_of_haproxy_has_no_line(
    tokenizer: Tokenizer, path: str, num_lines: int
) -> None:
    """The header that it sends hides no other request."""
    lines: list[str] = []
    async with made_world(tokenizer, access={"write_access": lines.append}) as world:
        headers = {"Attendant-Health-Check": "1"}
        assert (await world.client.get(path, headers=headers)).status_code == 200
        assert len(lines) == num_lines
        assert (await world.client.get("/ready")).status_code == 200
    assert len(lines) == num_lines + 1


@pytest.mark.parametrize("given", ["a" * 200, "é"])
async def test_an_odd_id_is_not_taken_over(world: World, given: str) -> None:
    headers = {b"X-Request-ID": given.encode()}
    await world.client.post("/translate", json=TRANSLATE[1], headers=headers)
    assert len(world.translator_engine.requests[0].request_id) < 100


async def test_what_was_started_has_ended_or_is_running(chat_world: World) -> None:
    """Under mixed traffic: served, refused, shed, failed, expired, gone away, and still there."""
    world, stream = chat_world, {**COMPLETE[1], "stream": True}
    await asyncio.gather(*(post(world, item) for item in (TRANSLATE, SCORE, COMPLETE)))
    await world.client.post("/v1/completions", json=stream)
    await world.client.post("/v1/completions", json={"model": "none", "prompt": "p"})
    await world.client.post("/translate", content=b"{")
    world.translator_engine.max_waiting = 0
    await world.client.post("/translate", json=TRANSLATE[1])
    world.generator_engine.fails_after = 1
    await world.client.post("/v1/completions", json=stream)
    world.generator_engine.fails_after = None
    gate = world.generator_engine.gate = asyncio.Event()
    going = [asyncio.create_task(post(world, COMPLETE)) for _ in range(2)]
    while len(world.generator_engine.requests) < 5:
        await asyncio.sleep(0)
    going[0].cancel()
    await asyncio.wait([going[0]])

    assert in_balance(world) == {"openai": 1}
    gate.set()
    assert (await going[1]).status_code == 200
    assert in_balance(world) == {}
    assert ends(world) == {
        ("libretranslate", "success"): 1,
        ("libretranslate", "refused"): 1,
        ("libretranslate", "overloaded"): 1,
        ("score", "success"): 1,
        ("openai", "success"): 3,
        ("openai", "refused"): 1,
        ("openai", "failed"): 1,
        ("openai", "cancelled"): 1,
    }


def post(world: World, asked: tuple[str, dict[str, Any]]) -> Any:
    path, body = asked
    return world.client.post(path, json=body)


def ends(world: World) -> dict[tuple[str, str], float]:
    return {
        (labels["protocol"], labels["outcome"]): value
        for labels, value in samples(world, "attendant_requests_total")
    }


def in_balance(world: World) -> dict[str, float]:
    """Return what is running, of each protocol, once it is known that all counters add up."""
    started = totals(world, "attendant_requests_started_total")
    ended = totals(world, "attendant_requests_total")
    running = totals(world, "attendant_requests_running")
    measured = totals(world, "attendant_request_seconds_count")
    assert started and started == ended + running
    assert measured == ended
    assert not +totals(world, "attendant_requests_reading")
    return {protocol: count for (_, protocol), count in (+running).items()}


def totals(world: World, name: str) -> "Counter[tuple[str, str]]":
    """Sum over outcomes."""
    found: Counter[tuple[str, str]] = Counter()
    for labels, value in samples(world, name):
        found[labels.get("model", ""), labels["protocol"]] += int(value)
    return found


def samples(world: World, name: str) -> list[tuple[dict[str, str], float]]:
    families = text_string_to_metric_families(world.metrics.exposition().decode())
    every = [sample for family in families for sample in family.samples]
    return [(sample.labels, sample.value) for sample in every if sample.name == name]
