"""Translated documents as they are sent."""

from pathlib import Path

import pytest

from serving.api.http.uploads import file_response
from serving.jobs.documents import DocumentData
from serving.jobs.table import Job

JOB = Job("id", "", DocumentData("a.txt", "en", "fr"), 0.0, 0.0)


@pytest.mark.parametrize("size", [1, 2**18, 2**18 + 1, 700_000])
async def test_a_document_is_removed_before_its_last_byte_is_sent(
    tmp_path: Path, size: int
) -> None:
    """A client that has all of it could else fetch it again."""
    path = tmp_path / "result.txt"
    path.write_bytes(bytes(size))
    num_sent = 0

    async def remove() -> None:
        path.unlink()

    async for chunk in file_response(JOB, path, remove).body_iterator:
        num_sent += len(chunk)
        assert path.exists() == (num_sent < size)
    assert num_sent == size
