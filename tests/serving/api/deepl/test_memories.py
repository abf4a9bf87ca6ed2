"""DeepL's translation memories: sent as TMX, used, paged, exported, deleted, and nobody else's."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.jobs.memory_imports import MemoryImportData
from serving.jobs.table import JobState, QueuedJob
from serving.server_config import DocumentLimits
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

MEMORIES = "/v3/translation_memories"
UNIT = '<tu><tuv xml:lang="en"><seg>{}</seg></tuv><tuv xml:lang="fr"><seg>{}</seg></tuv></tu>\n'
TMX = '<tmx version="1.4"><header srclang="en"/><body>\n{}</body></tmx>'
TEAM = TMX.format(UNIT.format("A dog.", "Un chien.") + UNIT.format("Page 2", "Page 2 !"))
ASKED = {"text": ["A dog. A cat.", "Page 3"], "source_lang": "EN", "target_lang": "FR"}


@pytest.fixture
async def stateful(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[World]:
    """A server that works on imports."""
    limits = DocumentLimits(memory_mib=1)
    async with (
        made_world(
            tokenizer, access={"state": open_state(tmp_path), "document_limits": limits}
        ) as world,
        world.app.router.lifespan_context(world.app),
    ):
        yield world


async def announce(world: World, text: str, **headers: str) -> dict[str, str]:
    body = {"source_file": {"file_name": "team.tmx", "content_length": len(text.encode())}}
    answer = await world.client.post(f"{MEMORIES}/import", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    job: dict[str, str] = answer.json()
    return job


async def sent(world: World, job: dict[str, str], text: str) -> httpx.Response:
    address = urlsplit(job["upload_url"])
    return await world.client.put(f"{address.path}?{address.query}", content=text.encode())


async def status_of(world: World, job: dict[str, str], **headers: str) -> dict[str, Any]:
    answer = await world.client.get(f"{MEMORIES}/jobs/{job['job_id']}", headers=headers)
    assert answer.status_code == 200, answer.text
    [result] = answer.json()["results"]
    return dict(result)


async def import_file(world: World, text: str = TEAM, **headers: str) -> dict[str, Any]:
    """Return the result of an import."""
    job = await announce(world, text, **headers)
    assert (await status_of(world, job, **headers))["status"] == "awaiting_input"
    assert (await sent(world, job, text)).status_code == 200
    async with asyncio.timeout(20):
        while (found := await status_of(world, job, **headers))["status"] == "processing":
            await asyncio.sleep(0.02)
    return found


async def test_a_memory_is_made_and_answers(stateful: World) -> None:
    result = await import_file(stateful)
    identity = result["translation_memory_id"]
    assert result == {
        "status": "completed",
        "translation_memory_id": identity,
        "skipped_segment_count": 0,
    }
    memory = (await stateful.client.get(f"{MEMORIES}/{identity}")).json()
    assert (memory["name"], memory["source_language"]) == ("team.tmx", "en")
    assert (memory["target_languages"], memory["segment_count"]) == (["fr"], 2)
    listed = (await stateful.client.get(MEMORIES)).json()
    assert listed == {"translation_memories": [memory]}
    assert (await stateful.client.get(f"{MEMORIES}?page=1")).json() == {"translation_memories": []}

    fields = ASKED | {"translation_memory_id": identity}
    both = (await stateful.client.post("/v2/translate", json=fields)).json()["translations"]
    assert [item["text"] for item in both] == ["Un chien. A CAT.", "Page 3 !"]
    assert both[0]["segments"] == [
        {"source": "A dog.", "target": "Un chien.", "origin": "memory", "score": 100},
        {"source": "A cat.", "target": "A CAT.", "origin": "model"},
    ]
    fields["translation_memory_threshold"] = 100
    exact = (await stateful.client.post("/v2/translate", json=fields)).json()["translations"]
    assert [item["text"] for item in exact] == ["Un chien. A CAT.", "PAGE 3"]

    body = {"q": "A dog.", "source": "en", "target": "fr", "memory": identity}
    answer = (await stateful.client.post("/translate", json=body)).json()
    assert answer["translatedText"] == "Un chien."
    assert [item["score"] for item in answer["segments"]] == [100]


async def test_units_are_paged_and_exported(stateful: World) -> None:
    identity = (await import_file(stateful))["translation_memory_id"]
    path = f"{MEMORIES}/{identity}"
    first = (await stateful.client.get(f"{path}/segments?page_size=1")).json()
    assert [item["source_text"] for item in first["segments"]] == ["A dog."]
    assert first["segment_count"] == 2
    rest = (
        await stateful.client.get(f"{path}/segments?page_cursor={first['next_page_cursor']}")
    ).json()
    assert [item["targets"][0]["target_text"] for item in rest["segments"]] == ["Page 2 !"]
    assert "next_page_cursor" not in rest
    segments = (await stateful.client.get(f"{path}/segments?filter_text=CHIEN")).json()["segments"]
    assert [item["source_text"] for item in segments] == ["A dog."]

    job = (await stateful.client.post(f"{path}/export")).json()
    address = urlsplit((await status_of(stateful, job))["download_url"])
    tmx = await stateful.client.get(f"{address.path}?{address.query}")
    again = await import_file(stateful, tmx.text)
    assert again["skipped_segment_count"] == 0
    for wrong in (address.path, f"{address.path}?secret=a"):
        assert (await stateful.client.get(wrong)).status_code == 404

    assert (await stateful.client.delete(path)).status_code == 204
    assert (await stateful.client.get(path)).status_code == 404
    fields = ASKED | {"translation_memory_id": identity}
    assert (await stateful.client.post("/v2/translate", json=fields)).status_code == 404


async def test_documents_use_a_memory(stateful: World) -> None:
    identity = (await import_file(stateful))["translation_memory_id"]
    data = {"source_lang": "EN", "target_lang": "FR", "translation_memory_id": identity}
    files = {"file": ("a.html", b"<p>A <b>dog</b>.</p><p>A cow. Page 7</p>")}
    handle = (await stateful.client.post("/v2/document", files=files, data=data)).json()
    key = {"document_key": handle["document_key"]}
    path = f"/v2/document/{handle['document_id']}"
    async with asyncio.timeout(20):
        while (await stateful.client.post(path, json=key)).json()["status"] != "done":
            await asyncio.sleep(0.02)
    result = await stateful.client.post(f"{path}/result", json=key)
    assert result.text == "<p>Un <b>chien</b>.</p><p>A COW. Page 7 !</p>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TMX.format("<tu>"), "line 2 is not well-formed XML: Opening and ending tag mismatch"),
        (f'<!DOCTYPE tmx [<!ENTITY a "b">]>{TEAM}', "line 1 must not declare entities"),
        (TMX.format(""), "has no translation units"),
        ("A dog.", "line 1 is not well-formed XML"),
        (TMX.format(UNIT.format("A", "B") * 3000 + "<tu><tuv/></tu>"), "line 3002 has a tuv"),
    ],
)
async def test_a_wrong_file_leaves_nothing(stateful: World, text: str, message: str) -> None:
    result = await import_file(stateful, text)
    assert result["status"] == "failed"
    assert message in result["error"]["message"] and "team.tmx" in result["error"]["message"]
    assert (await stateful.client.get(MEMORIES)).json() == {"translation_memories": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("POST", "/import", {}, "source_file: is required"),
        ("POST", "/import", {"source_file": {"file_name": "a"}}, "content_length"),
        (
            "POST",
            "/import",
            {"source_file": {"file_name": "a", "content_length": 2**21}},
            "source_file.content_length: must be at most 1048576",
        ),
        ("GET", "?page_size=26", None, "page_size: must be between 1 and 25"),
        ("GET", "?page=-1", None, "page: must be between 0 and"),
        ("GET", "/none", None, "no such translation memory"),
        ("GET", "/jobs/none", None, "no such translation memory"),
        ("POST", "/none/export", None, "no such translation memory"),
    ],
)
async def test_what_is_wrong_is_named(
    stateful: World, method: str, path: str, body: Any, message: str
) -> None:
    answer = await stateful.client.request(method, MEMORIES + path, json=body)
    assert 400 <= answer.status_code < 500
    assert message in answer.json()["message"], answer.text


async def test_a_file_comes_once_and_no_larger_than_allowed(stateful: World) -> None:
    job = await announce(stateful, TEAM)
    assert (await sent(stateful, job, "a" * 2**21)).status_code == 413
    assert (await sent(stateful, job, TEAM)).status_code == 200  # it may be tried again
    assert (await sent(stateful, job, TEAM)).status_code == 400


async def test_a_memory_of_other_languages_is_refused(stateful: World) -> None:
    text = TEAM.replace('"fr"', '"de"')
    identity = (await import_file(stateful, text))["translation_memory_id"]
    fields = ASKED | {"translation_memory_id": identity}
    answer = await stateful.client.post("/v2/translate", json=fields)
    assert answer.status_code == 400
    assert "translation_memory_id: is from en to de" in answer.json()["message"]


async def test_memories_are_their_makers(tokenizer: Tokenizer, tmp_path: Path) -> None:
    entries = tuple(KeyEntry(name=name, sha256=hash_key(name)) for name in ("ann", "bob"))
    write_keys(tmp_path / "keys.json", entries)
    keys = KeyRing(tmp_path / "keys.json", {})
    ann, bob = ({"Authorization": f"DeepL-Auth-Key {name}"} for name in ("ann", "bob"))
    async with (
        made_world(
            tokenizer, access={"state": open_state(tmp_path / "state"), "keys": keys}
        ) as world,
        world.app.router.lifespan_context(world.app),
    ):
        result = await import_file(world, **ann)
        path = f"{MEMORIES}/{result['translation_memory_id']}"
        assert (await world.client.get(path, headers=ann)).status_code == 200
        assert (await world.client.get(MEMORIES)).status_code == 403
        assert (await world.client.get(MEMORIES, headers=bob)).json()["translation_memories"] == []
        for method, each in (("GET", path), ("DELETE", path), ("POST", f"{path}/export")):
            refused = await world.client.request(method, each, headers=bob)
            assert refused.status_code == 404, each
        fields = ASKED | {"translation_memory_id": result["translation_memory_id"]}
        refused = await world.client.post("/v2/translate", json=fields, headers=bob)
        assert refused.status_code == 404


async def test_an_import_whose_memory_is_gone_fails_once(stateful: World) -> None:
    """So it is found after a kill, and where a file waited for more than a day."""
    job = await announce(stateful, TEAM)
    await stateful.services.memories.discard_import(job["job_id"])
    memories = stateful.services.memories
    async with asyncio.timeout(20):
        while memories._removal is None or not memories._removal.done():
            await asyncio.sleep(0.02)
    gone = await stateful.client.get(f"{MEMORIES}/jobs/{job['job_id']}")
    assert gone.status_code == 404
    now = time.time()
    await stateful.services.jobs.add(
        QueuedJob(job["job_id"], "", MemoryImportData(1), now, now + 60)
    )
    async with asyncio.timeout(20):
        while (
            await stateful.services.memory_imports.find(job["job_id"])
        ).state is not JobState.FAILED:  # type: ignore[union-attr]
            await asyncio.sleep(0.02)
