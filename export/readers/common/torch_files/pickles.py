"""Reads checkpoints of torch.save without torch and without running anything of them.

Two formats: since torch 1.6 a zip archive of `data.pkl`, a pickle, and `data/<key>`, storages, all
uncompressed; before that five pickles after each other and the storages behind them
(torch/serialization.py, `_save` and `_legacy_save`). The pickle is read by `export.readers.
unpickling`, as data; storages stay in the file, mapped into memory, until a tensor is asked for.
"""

import io
import mmap
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from export.readers.common.torch_files.storages import (
    STORED,
    Storages,
    rebuild_parameter,
    rebuild_size,
    rebuild_tensor,
)
from export.readers.common.torch_files.unpickling import Constructor, PickleProblem, unpickle
from models.storage.checkpoint import CheckpointError
from models.storage.files import open_archive

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the older format
LEGACY_START = b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."
ZIP_START = b"PK\x03\x04"
LEGACY_VERSION = 1001
COUNT = struct.Struct("<q")  # number of elements, before a storage of the older format
LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of a zip entry's name and extra field
LONGEST_START = 512
LARGEST_PICKLE = 2**26  # vocabularies of 100,000 words take 3 MB

_PLAIN = (
    *("float64", "float32", "float16", "bfloat16"),
    *("int64", "int32", "int16", "int8", "uint8", "bool", "strided"),
)

# What pickles may name beside tensors. All are data here: a Record with attributes, or a name.
NAMES = frozenset(
    [
        "argparse.Namespace",
        *STORED,
        *(f"torch.{name}" for name in _PLAIN),
    ]
)


def rebuild_ordered(*arguments: Any) -> dict[Any, Any]:
    """collections.OrderedDict; its items are set afterwards. Raises ValueError."""
    if arguments not in ((), ([],)):
        raise ValueError("an OrderedDict is made of something")
    return {}


def rebuild_default(*factory: Any) -> dict[Any, Any]:
    """collections.defaultdict, without its default."""
    return {}


def rebuild_device(*arguments: Any) -> str:
    """torch.device("cuda", 0): nothing depends on where tensors have been."""
    return "cpu"


CONSTRUCTORS: Mapping[str, Constructor] = {
    "collections.OrderedDict": rebuild_ordered,
    "collections.defaultdict": rebuild_default,
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch.Size": rebuild_size,
    "torch.device": rebuild_device,
}


def looks_like_torch(path: Path) -> bool:
    """Tell whether the file begins as torch.save's do: in an archive, the pickle comes first."""
    try:
        with path.open("rb") as file:
            start = file.read(LONGEST_START)
    except OSError:
        return False
    is_archive = start.startswith(ZIP_START) and b"/data.pkl" in start
    return is_archive or start.startswith(LEGACY_START)


def read_torch(path: Path, names: frozenset[str] = frozenset()) -> Any:
    """Read what torch.save wrote to `path`: an object of dicts, lists, tuples, texts and numbers.

    Tensors are `LazyArray`s, read when asked for; objects of the classes in `NAMES` and `names`
    are `Record`s. Raises CheckpointError with all forbidden names that the file holds.
    """
    try:
        if not path.is_file():
            raise PickleProblem(["there is no such file"])
        return _read(path, names)
    except PickleProblem as error:
        raise CheckpointError(path, error.problems) from None
    except OSError as error:
        raise CheckpointError(path, [f"it cannot be read: {error.strerror or error}"]) from None


def _read(path: Path, names: frozenset[str]) -> Any:
    if path.stat().st_size < len(LEGACY_START):
        raise PickleProblem(["it is too short for a torch checkpoint"])
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if mapped[: len(LEGACY_START)] == LEGACY_START:
        return _read_legacy(mapped, NAMES | names)
    if mapped[: len(ZIP_START)] == ZIP_START:
        return _read_zip(path, mapped, NAMES | names)
    raise PickleProblem(["it is no file of torch.save"])


def _read_zip(path: Path, mapped: mmap.mmap, names: frozenset[str]) -> Any:
    entries = _entries(path, len(mapped))
    root = _root(entries)
    pickle, order = entries[f"{root}data.pkl"], entries.get(f"{root}byteorder")
    if order is not None and mapped[order] != b"little":
        raise PickleProblem(["its numbers are not little-endian"])
    if pickle.stop - pickle.start > LARGEST_PICKLE:
        raise PickleProblem([f"its pickle is larger than {LARGEST_PICKLE} bytes"])
    storages = Storages()
    tree = _unpickle(io.BytesIO(mapped[pickle]), names, storages)
    problems: list[str] = []
    for key, storage in storages.by_key.items():
        storage.place(mapped, entries.get(f"{root}data/{key}"), problems)
    if problems:
        raise PickleProblem(problems)
    return tree


def _root(entries: Mapping[str, slice]) -> str:
    """Find the folder in the archive, which has the file's first name or is called "archive"."""
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise PickleProblem([f"the archive holds {len(roots)} pickles, expected one"])
    return roots[0]


def _entries(path: Path, size: int) -> dict[str, slice]:
    """Where the entries of the archive lie in the file, by name."""
    try:
        with open_archive(path) as archive, path.open("rb") as file:
            return {info.filename: _span(info, file, size) for info in archive.infolist()}
    # RuntimeError: what zipfile says of a version of the format that it does not know.
    except (zipfile.BadZipFile, ArithmeticError, RuntimeError, ValueError, struct.error):
        raise PickleProblem(["the archive is damaged or cut short"]) from None


def _span(info: zipfile.ZipInfo, file: IO[bytes], size: int) -> slice:
    """Find the entry's bytes, behind its local header."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise PickleProblem([f"{info.filename[:80]!r} in the archive is compressed or encrypted"])
    file.seek(info.header_offset)
    name_length, extra_length = LOCAL_HEADER.unpack(file.read(LOCAL_HEADER.size))
    start = file.tell() + name_length + extra_length
    if start + info.file_size > size:
        raise PickleProblem([f"{info.filename[:80]!r} in the archive is cut short"])
    return slice(start, start + info.file_size)


def _read_legacy(mapped: mmap.mmap, names: frozenset[str]) -> Any:
    storages = Storages()
    _magic, version, system = (_unpickle(mapped, frozenset(), None) for _ in range(3))
    if version != LEGACY_VERSION or not isinstance(system, dict):
        raise PickleProblem([f"it is not of version {LEGACY_VERSION} of the format"])
    if system.get("little_endian") is not True:
        raise PickleProblem(["its numbers are not little-endian"])
    tree = _unpickle(mapped, names, storages)
    keys = _unpickle(mapped, frozenset(), None)
    if not isinstance(keys, list) or set(map(str, keys)) != storages.by_key.keys():
        raise PickleProblem(["the file does not say where its storages are"])
    problems: list[str] = []
    for key in keys:
        storage = storages.by_key[key]
        start = mapped.tell() + COUNT.size
        storage.place(mapped, slice(start, start + storage.num_bytes), problems)
        if problems:
            raise PickleProblem(problems)
        mapped.seek(start + storage.num_bytes)
    return tree


def _unpickle(stream: Any, names: frozenset[str], storages: Storages | None) -> Any:
    load = storages.load if storages is not None else None
    return unpickle(stream, CONSTRUCTORS if storages is not None else {}, names, load)
