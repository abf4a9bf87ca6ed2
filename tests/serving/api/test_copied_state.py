"""What clients stored before all state is copied they find after it: in a database, and back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from serving.access.key_file import KeyEntry, hash_key, write_keys
from serving.access.key_ring import KeyRing
from serving.cli import main
from serving.deployments.stores import FILE_STORES, SCHEMAS
from serving.storage.copying import StateContents, StoredTables
from serving.storage.opening import open_state
from serving.text.tokenizer import Tokenizer
from tests.postgresql import NEEDS_POSTGRESQL
from tests.serving.api.conftest import made_world
from tests.serving.api.deepl.test_documents import result, send, status_of, wait_until_ended
from tests.serving.api.deepl.test_memories import import_file
from tests.serving.api.world import World

KEY = {"Authorization": "DeepL-Auth-Key any"}
BEARER = {"Authorization": "Bearer any"}
GLOSSARY = {
    "name": "Pets",
    "dictionaries": [
        {
            "source_lang": "en",
            "target_lang": "fr",
            "entries": "dog\tchien\ncat\tchat",
            "entries_format": "tsv",
        }
    ],
}


@asynccontextmanager
async def server(tokenizer: Tokenizer, place: str, folder: Path) -> AsyncIterator[World]:
    with closing(open_state(place)) as state:
        access = {"state": state, "keys": KeyRing(folder / "keys.json", {})}
        async with (
            made_world(tokenizer, access=access) as world,
            world.app.router.lifespan_context(world.app),
        ):
            world.client.headers.update(KEY)
            yield world


def copy(source: str, target: str) -> None:
    outcome = CliRunner().invoke(main, ["state", "copy", source, target])
    assert outcome.exit_code == 0, outcome.output


def all_rows(place: str) -> dict[str, list[str]]:
    """Return every row of every table of the server, as texts in an order of their own."""
    with closing(open_state(place)) as state:
        return {
            table.name: sorted(repr(row) for rows in tables.rows(table) for row in rows)
            for tables in (StoredTables(state, schema) for schema in SCHEMAS)
            for table in tables.tables
        }


def count(place: str) -> dict[str, int]:
    with closing(open_state(place)) as state:
        return StateContents(state, SCHEMAS, FILE_STORES).count()


@NEEDS_POSTGRESQL
async def test_clients_find_everything_after_a_round_trip(
    tokenizer: Tokenizer, tmp_path: Path, database_url: str
) -> None:
    entry = KeyEntry(name="any", sha256=hash_key("any"), characters_per_month=1_000)
    write_keys(tmp_path / "keys.json", (entry,))
    first, last = str(tmp_path / "first"), str(tmp_path / "last")
    async with server(tokenizer, first, tmp_path) as world:
        sent = [(await send(world, "a.txt", b"one\ntwo")).json() for _ in range(2)]
        for document in sent:
            await wait_until_ended(world, document)
        memory = (await import_file(world))["translation_memory_id"]
        glossary = (await world.client.post("/v3/glossaries", json=GLOSSARY)).json()
        usage = (await world.client.get("/v2/usage")).json()
        body: dict[str, Any] = {"files": {"file": ("b.jsonl", b"{}")}, "data": {"purpose": "batch"}}
        file = (await world.client.post("/v1/files", **body, headers=BEARER)).json()

    copy(first, database_url)
    async with server(tokenizer, database_url, tmp_path) as world:
        assert (await status_of(world, sent[0]))["status"] == "done"
        assert (await result(world, sent[0])).content == b"ONE\nTWO"
        assert (await world.client.get("/v2/usage")).json() == usage
    copy(database_url, last)

    assert all_rows(database_url) == all_rows(last)
    assert count(database_url) == count(last)
    async with server(tokenizer, last, tmp_path) as world:
        assert (await result(world, sent[1])).content == b"ONE\nTWO"
        memories = (await world.client.get("/v3/translation_memories")).json()
        assert [entry["translation_memory_id"] for entry in memories["translation_memories"]] == [
            memory
        ]
        identity = glossary["glossary_id"]
        assert (await world.client.get(f"/v3/glossaries/{identity}")).json() == glossary
        content = await world.client.get(f"/v1/files/{file['id']}/content", headers=BEARER)
        assert content.content == b"{}"
