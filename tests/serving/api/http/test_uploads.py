"""Translated documents as they are sent."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from serving.api.http.uploads import file_response, read_chunks_once
from serving.jobs.documents import DocumentData, TakenResult
from serving.jobs.table import QueuedJob

JOB = QueuedJob("id", "", DocumentData("a.txt", "en", "fr"), 0.0, 0.0)


class Taken(TakenResult):
    """Notes how sending ended."""

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "path", path)
        object.__setattr__(self, "file", path.open("rb"))
        object.__setattr__(self, "ends", [])

    async def mark_sent(self) -> None:
        self.path.unlink()  # type: ignore[attr-defined]
        self.ends.append("sent")  # type: ignore[attr-defined]

    async def mark_interrupted(self) -> None:
        self.ends.append("broken off")  # type: ignore[attr-defined]


@pytest.mark.parametrize("size", [1, 2**18, 2**18 + 1, 700_000])
async def test_a_document_is_removed_before_its_last_byte_is_sent(
    tmp_path: Path, size: int
) -> None:
    """A client that has all of it could else fetch it again."""
    path = tmp_path / "result.txt"
    path.write_bytes(bytes(size))
    result = Taken(path)
    num_sent = 0

    async for chunk in file_response(JOB, result.file, result).body_iterator:
        num_sent += len(chunk)
        assert path.exists() == (num_sent < size)
    assert num_sent == size
    await asyncio.sleep(0)
    assert result.ends == ["sent"]  # type: ignore[attr-defined]


async def test_a_document_whose_client_goes_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "result.txt"
    path.write_bytes(bytes(700_000))
    result = Taken(path)
    async with aclosing(read_chunks_once(result)) as chunks:
        assert await anext(chunks)
    await asyncio.sleep(0)
    assert path.exists() and result.ends == ["broken off"]  # type: ignore[attr-defined]
