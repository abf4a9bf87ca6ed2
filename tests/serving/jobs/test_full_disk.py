"""Documents and batches on a disk that fills up: they wait, and end once there is room."""

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.errors import StorageError
from serving.jobs import queue
from serving.jobs.batches import Batches
from serving.jobs.documents import Documents, Handle
from serving.jobs.queue import JobQueue
from serving.jobs.table import OPEN
from serving.pipelines.routing import DocumentSources
from serving.server_config import DocumentLimits
from serving.storage.database import Connection
from serving.storage.opening import open_state
from serving.storage.sqlite import SqliteConnection
from tests.serving.documents.shouting import ShoutingTranslator
from tests.serving.jobs.killed import URL, answer, requests, text_of
from tests.small_disk import fill, make_read_only, make_room, small_disk

_SECONDS_OF_TROUBLE = 0.5  # more than two leases


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(queue, "LEASE_SECONDS", 0.2)
    monkeypatch.setattr(queue, "_RENEWAL_SECONDS", 0.05)
    monkeypatch.setattr(queue, "_POLL_SECONDS", 0.1)
    with small_disk(tmp_path / "disk") as folder:
        yield folder


class Server:
    """Documents and batches in a folder. accepted: what clients have been promised."""

    def __init__(self, folder: Path) -> None:
        self.translator = ShoutingTranslator()
        self.queue = JobQueue(open_state(folder))
        self.documents = Documents(self.queue, self.translator.catalog, DocumentLimits())
        self.batches = Batches(self.queue, answer)
        self.accepted: dict[int, Handle] = {}
        self.accepted_batches: list[str] = []
        self.num_refused = 0

    async def ask(self, number: int) -> None:
        """Send a document and a batch, as far as the disk lets them in."""
        try:
            async with self.documents.receive(io.BytesIO(text_of(number)), "a.txt") as document:
                self.accepted[number] = await self.documents.queue(
                    document, "ann", DocumentSources("en"), "fr"
                )
            file = await self.batches.add_file("ann", "in.jsonl", requests())
            self.accepted_batches.append((await self.batches.create("ann", URL, file.id, {})).id)
        except StorageError:
            self.num_refused += 1

    async def check(self) -> None:
        """Everything that was accepted is there, whole, and was done once."""
        async with asyncio.timeout(60):
            for number, handle in self.accepted.items():
                await self.documents.wait_until_finished(handle, "ann")
                _, file = await self.documents.open_result(handle, "ann")
                with file:
                    assert file.read() == text_of(number).upper()
            for identity in self.accepted_batches:
                while (batch := await self.batches.batch("ann", identity)).state in OPEN:
                    await asyncio.sleep(0.01)
                assert batch.data.output_file is not None
                with await self.batches.open_file("ann", batch.data.output_file) as file:
                    said = [json.loads(line)["custom_id"] for line in file]
                assert said == [json.loads(line)["custom_id"] for line in requests()]


@pytest.mark.parametrize(
    "kib_left",
    [
        *(0, 16, 64, 192),
        *(pytest.param(kib, marks=pytest.mark.full) for kib in (4, 8, 24, 32, 48, 96, 128, 256)),
    ],
)
async def test_what_was_accepted_ends_once_the_disk_has_room_again(
    disk: Path, kib_left: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(disk / "state")
    async with server.queue.run_workers(server.documents, server.batches):
        await server.ask(0)
        fill(disk, kib_left)
        for number in range(1, 6):
            await server.ask(number)
        await asyncio.sleep(_SECONDS_OF_TROUBLE)
        make_room(disk)
        await server.check()
        await server.ask(6)
        await server.check()
    assert 6 in server.accepted
    assert server.num_refused or kib_left >= 64
    assert "internal" not in caplog.text


async def test_a_disk_that_is_full_from_the_start_is_waited_for(
    disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(disk / "state")
    fill(disk)
    async with server.queue.run_workers(server.documents, server.batches):
        await server.ask(0)
        await asyncio.sleep(_SECONDS_OF_TROUBLE)
        assert not server.accepted and server.num_refused
        make_room(disk)
        await server.ask(1)
        await server.check()
    assert 1 in server.accepted
    assert caplog.text.count("documents and batches wait") == 1


async def test_a_disk_that_is_read_only_at_first(disk: Path) -> None:
    before = Server(disk / "state")
    await before.ask(0)
    await before.queue.database.run(_close)
    make_read_only(disk)
    server = Server(disk / "state")
    async with server.queue.run_workers(server.documents, server.batches):
        await server.ask(1)
        await asyncio.sleep(_SECONDS_OF_TROUBLE)
        assert not server.accepted
        make_read_only(disk, False)
        server.accepted.update(before.accepted)
        server.accepted_batches.extend(before.accepted_batches)
        await server.check()
        await server.ask(2)
        await server.check()
    assert {*server.accepted} == {0, 2}


async def test_files_can_be_deleted_from_a_full_disk(disk: Path) -> None:
    server = Server(disk / "state")
    large = await server.batches.add_file("ann", "in.jsonl", io.BytesIO(bytes(300_000)))
    fill(disk)
    with pytest.raises(StorageError):
        await server.batches.add_file("ann", "in.jsonl", requests())
    await server.batches.delete_file("ann", large.id)
    await server.batches.add_file("ann", "in.jsonl", requests())


def _close(connection: Connection) -> None:
    assert isinstance(connection, SqliteConnection)
    connection.close()
