"""Reading files from outside within bounds: no file that never ends or does not fit into memory.

A list of millions of entries in a file would keep a reader busy for minutes, so the length of a
list is checked before its entries are used.
"""

import errno
import io
import json
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MOST_BYTES = 2**28  # of vocabularies and tokenizers; weights are mapped
MOST_CONFIG_BYTES = 2**22  # of a configuration; those of models have some kilobytes
MOST_HEADER_BYTES = 2**23  # of a safetensors file: 80,000 tensors
MOST_DIRECTORY_BYTES = 2**22  # of a zip archive: 50,000 members
MOST_INFLATION = 100  # of an archive: bytes of its members to each of its own


def read_file(path: Path, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the bytes of a file. Raises OSError, also for a pipe, a device, or a file larger than
    `most_bytes`.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is no regular file", path.name)
    if status.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 2**20:g} MiB", path.name)
    return path.read_bytes()


def read_text(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """Return UTF-8 text. Raises OSError as `read_file` does, and UnicodeDecodeError."""
    return read_file(path, most_bytes).decode("utf-8")


def read_json(path: Path, most_bytes: int = MOST_CONFIG_BYTES) -> Any:
    """Return the parsed JSON. Raises OSError as `read_file` does, and ValueError with the
    problem.
    """
    try:
        text = read_text(path, most_bytes)
        if not text.strip():
            raise ValueError("is empty")
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("is not JSON: it nests too deep") from None


def check_safetensors(path: Path) -> None:
    """Check that a safetensors file can be opened. Raises OSError, also if its header is larger
    than that of any model.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if MOST_HEADER_BYTES < size < path.stat().st_size:  # beyond the file it is another mistake
        message = f"its header is larger than {MOST_HEADER_BYTES >> 20} MiB"
        raise OSError(errno.EFBIG, message, path.name)


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive without reading its members. Raises the errors of ZipFile, and BadZipFile
    for too many members or for members that would decompress to far more than their size.
    """
    with _Directory(path) as file, zipfile.ZipFile(file) as archive:
        inflated = sum(info.file_size for info in archive.infolist())
        if inflated > MOST_INFLATION * path.stat().st_size:
            message = (
                f"its members have {inflated:,} bytes, more than {MOST_INFLATION} times its own"
            )
            raise zipfile.BadZipFile(message)
        yield archive


class _Directory(io.FileIO):
    """A file object that limits how many bytes ZipFile reads at a time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MOST_DIRECTORY_BYTES:
            raise zipfile.BadZipFile("it has too many members")
        return super().read(-1 if size is None else size) or b""
