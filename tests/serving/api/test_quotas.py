"""Quotas in every protocol: what is billed, and how who has used theirs up is told."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.errors import Overloaded
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

EN_FR = {"source": "en", "target": "fr"}
BEARER = {"Authorization": "Bearer poor"}
DEEPL = {"Authorization": "DeepL-Auth-Key poor"}
# path, body, headers, and how many characters it has
ASKED: list[tuple[str, dict[str, Any], dict[str, str], int]] = [
    ("/translate", {"q": ["ab", "c"], **EN_FR}, BEARER, 3),
    ("/score", {"q": "a", "translations": ["A", "B"], **EN_FR}, BEARER, 4),
    ("/v1/completions", {"model": "story", "prompt": "abcd"}, BEARER, 4),
    ("/v1/completions", {"model": "story", "prompt": "abcd", "stream": True}, BEARER, 4),
    ("/v1/completions", {"model": "story", "prompt": [5, 6]}, BEARER, 2),
    ("/v2/translate", {"text": ["abc"], "target_lang": "FR"}, DEEPL, 3),
]
USAGES = [("/usage", BEARER), ("/v1/usage", BEARER), ("/v2/usage", DEEPL)]
LIMIT = 20


@pytest.fixture
async def world(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[World]:
    limits = {"characters_per_month": LIMIT}
    entries = (
        KeyEntry(name="poor", sha256=hash_key("poor"), **limits),
        KeyEntry(name="any", sha256=hash_key("any")),
    )
    write_keys(tmp_path / "keys.json", entries)
    ring = KeyRing(tmp_path / "keys.json", {})
    access = {"keys": ring, "state": open_state(tmp_path)}
    async with made_world(tokenizer, access=access) as world:
        yield world


async def used_characters(world: World) -> int:
    """How many characters, as every protocol says."""
    answer = [(await world.client.get(path, headers=key)).json() for path, key in USAGES]
    assert all(item == answer[0] for item in answer)
    assert answer[0]["character_limit"] == LIMIT and answer[0]["end_time"].endswith("Z")
    count: int = answer[0]["character_count"]
    return count


async def test_every_protocol_bills_what_is_answered(world: World) -> None:
    billed = 0
    for path, body, headers, characters in ASKED:
        response = await world.client.post(path, json=body, headers=headers)
        assert response.status_code == 200, response.text
        billed += characters
        assert await used_characters(world) == billed


async def test_what_is_refused_or_fails_is_not_billed(world: World) -> None:
    for path, body, headers, _ in ASKED:
        await world.client.post(path, json={**body, "nonsense": 1}, headers=headers)
    world.translator_engine.refusal = Overloaded(9)
    for path in ("/translate", "/v2/translate"):
        [(_, body, headers, _)] = [item for item in ASKED if item[0] == path]
        assert (await world.client.post(path, json=body, headers=headers)).status_code == 429
    assert await used_characters(world) == 0


async def test_beyond_its_quota_a_key_is_refused_in_the_protocols_way(world: World) -> None:
    body = {"text": ["a" * LIMIT], "target_lang": "FR"}
    assert (await world.client.post("/v2/translate", json=body, headers=DEEPL)).is_success
    for path, body, headers, _ in ASKED:
        refused = await world.client.post(path, json=body, headers=headers)
        assert refused.status_code == (456 if path.startswith("/v2") else 429)
        assert "no more than 20 characters a month" in refused.text
        assert int(refused.headers["retry-after"]) > 0
        assert refused.headers["x-should-retry"] == "false"
        if path.startswith("/v1"):
            assert refused.json()["error"]["code"] == "insufficient_quota"
    assert await used_characters(world) == LIMIT


async def test_without_a_limit_what_is_used_is_told(world: World) -> None:
    key = {"Authorization": "Bearer any"}
    await world.client.post("/translate", json=ASKED[0][1], headers=key)
    usage = (await world.client.get("/usage", headers=key)).json()
    assert (usage["character_count"], usage["character_limit"]) == (3, None)
    deepl = {"Authorization": "DeepL-Auth-Key any"}
    usage = (await world.client.get("/v2/usage", headers=deepl)).json()
    assert (usage["character_count"], usage["character_limit"]) == (3, 10**12)
    assert (await world.client.get("/usage")).status_code == 403
    assert (await world.client.get("/v1/usage")).status_code == 401


async def test_state_that_cannot_be_written_is_said_to_keys_with_a_quota(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    entries = (
        KeyEntry(name="poor", sha256=hash_key("poor"), characters_per_month=LIMIT),
        KeyEntry(name="any", sha256=hash_key("any")),
    )
    write_keys(tmp_path / "keys.json", entries)
    ring = KeyRing(tmp_path / "keys.json", {})
    access = {"keys": ring, "state": open_state(Path("/dev/null/state"))}
    async with made_world(tokenizer, access=access) as world:
        response = await world.client.post("/translate", json=ASKED[0][1], headers=BEARER)
        assert (response.status_code, response.json()) == (
            503,
            {"error": "the server cannot use its state now"},
        )
        assert response.headers["retry-after"]
        headers = {"Authorization": "Bearer any"}
        response = await world.client.post("/translate", json=ASKED[0][1], headers=headers)
        assert response.status_code == 200
