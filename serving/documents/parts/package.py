"""Opens office documents, which are ZIP archives, and writes them with some of their parts changed.

All other parts stay as they are, to the byte. Archives that would unpack to more than the limits
below, or that are not what they say, are refused before any part is read.
"""

import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Mapping
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from zlib import error as ZlibError

from serving.errors import RequestError, TooLarge

MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 256 * 2**20
MAX_RATIO = 200  # of what unpacks to more than MIN_BOMB_BYTES; XML seldom packs to a fiftieth
MIN_BOMB_BYTES = 4 * 2**20
_ENCRYPTED = 0x1
_CHUNK_BYTES = 2**20
# What reading an archive raises that is damaged; bzip2's data and places outside the file are
# OSErrors, names in no encoding ValueErrors, and zipfile knows a version or a compression that it
# does not read as NotImplementedError.
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, NotImplementedError, ZlibError),
    *(LZMAError, OSError, ValueError),
)
_MACROS = re.compile(r"vba(project|data)|^basic/|^scripts/", re.IGNORECASE)


class Package:
    """Holds the parts of an archive that was checked."""

    def __init__(self, path: Path) -> None:
        """Raises RequestError, TooLarge for what unpacks to too much."""
        self._path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self._entries = {entry.filename: entry for entry in archive.infolist()}
                _check(archive)
        except _DAMAGE as error:
            message = f"is no whole ZIP archive, as its format asks for: {error}"
            raise RequestError("file", path.name, message) from None

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def read(self, name: str) -> bytes:
        if name not in self._entries:
            raise RequestError("file", name, "is missing in the archive")
        with zipfile.ZipFile(self._path) as archive:
            return archive.read(name)

    def write(self, target: Path, changed: Mapping[str, bytes]) -> None:
        """Write all parts in their order, those that are changed in the place of the old ones."""
        with zipfile.ZipFile(self._path) as source, zipfile.ZipFile(target, "w") as result:
            for entry in self._entries.values():
                own = zipfile.ZipInfo(entry.filename, entry.date_time)
                own.compress_type = entry.compress_type
                own.external_attr = entry.external_attr
                if entry.filename in changed:
                    result.writestr(own, changed[entry.filename])
                else:
                    with source.open(entry) as old, result.open(own, "w") as new:
                        shutil.copyfileobj(old, new, _CHUNK_BYTES)


def _check(archive: zipfile.ZipFile) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise TooLarge("file", len(entries), f"at most {MAX_ENTRIES} entries may be in the archive")
    _check_sizes(entries)
    names = Counter(entry.filename for entry in entries)
    for entry in entries:
        _check_name(entry.filename, names)
        if entry.flag_bits & _ENCRYPTED:
            raise RequestError("file", entry.filename, "is encrypted")
        _check_content(archive, entry)


def _check_sizes(entries: list[zipfile.ZipInfo]) -> None:
    unpacked = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if unpacked > MAX_UNPACKED_BYTES:
        message = f"unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB"
        raise TooLarge("file", f"{unpacked} bytes", message)
    if unpacked > MIN_BOMB_BYTES and unpacked > MAX_RATIO * packed:
        message = f"unpacks to more than {MAX_RATIO} times its size"
        raise TooLarge("file", f"{unpacked} bytes of {packed}", message)


def _check_name(name: str, names: Counter[str]) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise RequestError("file", name, "leads out of the archive")
    if names[name] > 1:
        raise RequestError("file", name, "is in the archive more than once")
    if _MACROS.search(name):
        raise RequestError("file", name, "is a macro; documents with macros are refused")


def _check_content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Unpack all of it once: its length and its checksum have to be what the archive says."""
    num_bytes = 0
    with archive.open(entry) as file:
        while chunk := file.read(_CHUNK_BYTES):
            num_bytes += len(chunk)
    if num_bytes != entry.file_size:
        raise RequestError("file", entry.filename, "is cut short")
