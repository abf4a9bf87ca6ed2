"""DeepL's glossaries: made, read, changed, deleted, used, and nobody else's."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.glossaries import store as glossaries
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.serving.api.conftest import made_world
from tests.serving.api.world import World

PAIR = {"source_lang": "en", "target_lang": "fr"}
ANIMALS = {"name": "animals", **PAIR, "entries": "dog\tchien\ncat\tchat", "entries_format": "tsv"}
V3 = {"name": "animals", "dictionaries": [{**PAIR, "entries": "dog\tchien"}]}


@pytest.fixture
async def stateful(tokenizer: Tokenizer, tmp_path: Path) -> AsyncIterator[World]:
    """A world with a state of its own."""
    async with made_world(tokenizer, access={"state": open_state(tmp_path)}) as world:
        yield world


async def create_glossary(world: World, path: str = "/v2/glossaries", **fields: Any) -> str:
    request = (ANIMALS if path == "/v2/glossaries" else V3) | fields
    response = await world.client.post(path, json=request)
    assert response.status_code == 201, response.text
    identity: str = response.json()["glossary_id"]
    return identity


def status_and_message(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["message"]


async def test_a_glossary_of_one_pair(stateful: World) -> None:
    identity = await create_glossary(stateful)
    path = f"/v2/glossaries/{identity}"
    answer = (await stateful.client.get(path)).json()

    assert {
        "glossary_id": identity,
        "ready": True,
        "entry_count": 2,
        **PAIR,
    }.items() <= answer.items()
    assert answer["name"] == "animals" and answer["creation_time"].endswith("Z")
    assert (await stateful.client.get("/v2/glossaries")).json() == {"glossaries": [answer]}
    entries = await stateful.client.get(f"{path}/entries")
    assert entries.text == ANIMALS["entries"]
    assert entries.headers["content-type"] == "text/tab-separated-values; charset=UTF-8"
    refused = await stateful.client.get(f"{path}/entries", headers={"accept": "text/csv"})
    assert refused.status_code == 415

    assert (await stateful.client.delete(path)).status_code == 204
    for method in ("GET", "DELETE"):
        assert status_and_message(await stateful.client.request(method, path))[0] == 404


async def test_a_glossary_is_changed(stateful: World) -> None:
    identity = await create_glossary(stateful, "/v3/glossaries")
    path = f"/v3/glossaries/{identity}"
    more = [{**PAIR, "entries": "dog,toutou\ncow,vache", "entries_format": "csv"}]
    changed = await stateful.client.patch(path, json={"name": "beasts", "dictionaries": more})
    assert (changed.json()["name"], changed.json()["dictionaries"]) == (
        "beasts",
        [{**PAIR, "entry_count": 2}],
    )
    assert await entries(stateful, path) == "dog\ttoutou\ncow\tvache"

    put = await stateful.client.put(f"{path}/dictionaries", json={**PAIR, "entries": "pig\tcochon"})
    assert (put.status_code, put.json()) == (200, {**PAIR, "entry_count": 1})
    assert await entries(stateful, path) == "pig\tcochon"

    assert (await stateful.client.delete(f"{path}/dictionaries", params=PAIR)).status_code == 204
    assert (await stateful.client.get(path)).json()["dictionaries"] == []
    assert (await stateful.client.delete(f"{path}/dictionaries", params=PAIR)).status_code == 400
    assert (await stateful.client.get(f"/v2/glossaries/{identity}")).status_code == 404
    assert (await stateful.client.delete(path)).status_code == 204


async def entries(world: World, path: str) -> str:
    answer = (await world.client.get(f"{path}/entries", params=PAIR)).json()
    [dictionary] = answer["dictionaries"]
    assert dictionary.items() >= {**PAIR, "entries_format": "tsv"}.items()
    text: str = dictionary["entries"]
    return text


WRONG_ENTRIES: list[tuple[dict[str, Any], str]] = [
    ({"entries": ""}, "has no entries"),
    ({"entries": "dog chien"}, "Key with the index 0 (starting at position 0) misses tab"),
    ({"entries": "a\tb\tc"}, "has more than one tab separator"),
    ({"entries": "dog\t"}, "lacks a term or its translation"),
    ({"entries": "d\x07og\tchien"}, "holds a control character"),
    ({"entries": "d\u2028og\tchien"}, "holds a line separator"),
    ({"entries": "é" * 513 + "\tchien"}, "is longer than 1024 bytes"),
    ({"entries": "dog", "entries_format": "csv"}, "needs 2 values, or 4"),
    ({"entries": '"dog,chien', "entries_format": "csv"}, "is not valid CSV"),
    ({"entries": "dog,Hund,en,de", "entries_format": "csv"}, "has no entries"),
]


async def test_entries_that_are_wrong(stateful: World) -> None:
    for fields, detail in WRONG_ENTRIES:
        response = await stateful.client.post("/v2/glossaries", json=ANIMALS | fields)
        assert status_and_message(response) == (400, "Invalid glossary entries provided")
        assert detail in response.json()["detail"]


WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"target_lang": "xx"}, "Value for 'target_lang' not supported."),
    ({"name": " "}, "name: must have between 1 and 1024 bytes"),
    ({"name": "\ud800"}, "name: must be valid Unicode"),
    ({"name": None}, "name: is required"),
    ({"entries_format": "xls"}, "entries_format: "),
    ({"entries": 7}, "Invalid glossary entries provided"),
    ({"colour": "red"}, "colour: is not supported here"),
]


async def test_fields_that_are_wrong(stateful: World) -> None:
    for fields, message in WRONG_FIELDS:
        content = json.dumps(ANIMALS | fields)
        response = await stateful.client.post("/v2/glossaries", content=content)
        assert response.status_code == 400
        assert response.json()["message"].startswith(message), response.text


async def test_csv_with_quotes_and_languages(stateful: World) -> None:
    rows = 'first,premier,en,fr\n"source""Entry","target,Entry",EN,FR\nHund,dog,de,en\n'
    identity = await create_glossary(stateful, entries=rows, entries_format="csv")
    result = await stateful.client.get(f"/v2/glossaries/{identity}/entries")
    assert result.text == 'first\tpremier\nsource"Entry\ttarget,Entry'


async def test_a_term_base(stateful: World) -> None:
    terms = "".join(
        f"<langSec xml:lang='{language}'><termSec><term>{term}</term></termSec></langSec>"
        for language, term in (("en", "dog"), ("fr", "chien"))
    )
    tbx = f"<tbx><text><body><conceptEntry>{terms}</conceptEntry></body></text></tbx>"
    dictionary = {**PAIR, "entries": tbx, "entries_format": "tbx"}
    identity = await create_glossary(stateful, "/v3/glossaries", dictionaries=[dictionary])

    assert await entries(stateful, f"/v3/glossaries/{identity}") == "dog\tchien"


@pytest.mark.parametrize(
    ("entries_format", "text"), [("tsv", "\ufeffdog\tchien"), ("csv", '\ufeff"dog","chien"')]
)
async def test_a_byte_order_mark_is_no_part_of_a_term(
    stateful: World, entries_format: str, text: str
) -> None:
    identity = await create_glossary(stateful, entries=text, entries_format=entries_format)

    result = await stateful.client.get(f"/v2/glossaries/{identity}/entries")

    assert result.text == "dog\tchien"


async def test_too_much(stateful: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "\n".join(f"{number:05d}\t{'x' * 1000}" for number in range(10_500))
    response = await stateful.client.post("/v2/glossaries", json={**ANIMALS, "entries": lines})
    assert response.status_code == 413
    monkeypatch.setattr(glossaries, "MAX_GLOSSARIES_PER_KEY", 1)
    await create_glossary(stateful)
    assert status_and_message(await stateful.client.post("/v2/glossaries", json=ANIMALS))[0] == 456


async def test_parts_of_a_glossary_are_too_much_together(
    stateful: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glossaries, "MAX_BYTES", 25)
    identity = await create_glossary(stateful)
    more = {"dictionaries": [{**PAIR, "entries": "cow\tvache"}]}
    refused = await stateful.client.patch(f"/v3/glossaries/{identity}", json=more)
    assert refused.status_code == 413
    assert await entries(stateful, f"/v3/glossaries/{identity}") == ANIMALS["entries"]


async def test_a_glossary_belongs_to_its_key(tokenizer: Tokenizer, tmp_path: Path) -> None:
    keys = tuple(KeyEntry(name=name, sha256=hash_key(name)) for name in ("alice", "bob"))
    write_keys(tmp_path / "keys.json", keys)
    access = {"keys": KeyRing(tmp_path / "keys.json", {}), "state": open_state(tmp_path)}
    async with made_world(tokenizer, access=access) as world:
        assert status_and_message(await world.client.get("/v3/glossaries"))[0] == 403
        world.client.headers["Authorization"] = "DeepL-Auth-Key alice"
        identity = await create_glossary(world)
        world.client.headers["Authorization"] = "DeepL-Auth-Key bob"
        assert (await world.client.get("/v3/glossaries")).json() == {"glossaries": []}
        for method in ("GET", "DELETE"):
            result = await world.client.request(method, f"/v3/glossaries/{identity}")
            assert status_and_message(result)[0] == 404
        request = {"text": ["a"], "source_lang": "en", "target_lang": "fr", "glossary_id": identity}
        assert status_and_message(await world.client.post("/v2/translate", json=request))[0] == 404


async def test_entries_that_occur_are_kept_to(stateful: World) -> None:
    many = "".join(f"word{number}\tmot{number}\n" for number in range(5000))
    first = await create_glossary(stateful, entries=f"{many}dog\tCHIEN\ndog house\tNICHE\nthe\tLE")
    second = await create_glossary(stateful, entries="dog\tTOUTOU\ncat\tCHAT")
    request = {"text": ["a dog house", "Dog, cat"], **PAIR, "glossary_ids": [first, second]}
    response = await stateful.client.post("/v2/translate", json=request)

    assert response.status_code == 200, response.text
    texts = [translation["text"] for translation in response.json()["translations"]]
    assert texts == ["A NICHE", "CHIEN, CHAT"]


async def test_a_glossary_of_other_languages(stateful: World) -> None:
    identity = await create_glossary(stateful)
    await stateful.client.delete(f"/v3/glossaries/{identity}/dictionaries", params=PAIR)
    request = {"text": ["a"], **PAIR, "glossary_id": identity}
    response = await stateful.client.post("/v2/translate", json=request)
    assert status_and_message(response)[0] == 400 and "no dictionary from en to fr" in response.text
