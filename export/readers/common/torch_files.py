"""Checkpoints of torch.save, read without torch and without running anything of them.

Two formats: since torch 1.6 a zip archive of `data.pkl`, a pickle, and `data/<key>`, storages, all
uncompressed; before that five pickles after each other and the storages behind them
(torch/serialization.py, `_save` and `_legacy_save`). `unpickling` makes plain data of the pickle;
storages stay in the file, mapped into memory, until a tensor is read.

A pickle holds a tensor as torch._utils._rebuild_tensor_v2(storage, offset, size, stride, ...) and a
storage as the persistent id ("storage", class, key, location, number of elements). All are checked:
every element must be in its storage, and a tensor must not have more elements than its storage, or
a few bytes would describe more memory than there is.
"""

import io
import math
import mmap
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from export.readers.common.unpickling import (
    MOST_BYTES,
    Constructor,
    Items,
    PickleProblem,
    Record,
    Sealed,
    unpickle,
)
from models.checkpoint import CheckpointError
from models.files import open_archive

MOST_DIMENSIONS = 8
MOST_ELEMENTS = 2**48
MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the older format
LEGACY_START = b"\x80\x02\x8a\x0a" + MAGIC.to_bytes(10, "little") + b"."
ZIP_START = b"PK\x03\x04"
LEGACY_VERSION = 1001
COUNT = struct.Struct("<q")  # number of elements, before a storage of the older format
LOCAL_HEADER = struct.Struct("<26xHH")  # lengths of a zip entry's name and extra field
LONGEST_START = 512

# storage classes of torch: what an element is called in safetensors, and how it lies in the file
STORED: dict[str, tuple[str, str]] = {
    "torch.DoubleStorage": ("F64", "<f8"),
    "torch.FloatStorage": ("F32", "<f4"),
    "torch.HalfStorage": ("F16", "<f2"),
    "torch.BFloat16Storage": ("BF16", "<u2"),
    "torch.LongStorage": ("I64", "<i8"),
    "torch.IntStorage": ("I32", "<i4"),
    "torch.ShortStorage": ("I16", "<i2"),
    "torch.CharStorage": ("I8", "|i1"),
    "torch.ByteStorage": ("U8", "|u1"),
    "torch.BoolStorage": ("BOOL", "|b1"),
}
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


class TorchStorage(Sealed):
    """Describes a run of elements in the file; `elements` are known once it is placed."""

    def __init__(self, key: str, class_name: str, size: int) -> None:
        self.key, self.class_name, self.size = key, class_name, size
        self.kind, dtype = STORED[class_name]
        self.dtype = np.dtype(dtype)
        self.elements: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        return self.size * self.dtype.itemsize

    def place(self, file: mmap.mmap, span: slice | None, problems: list[str]) -> None:
        """Take the bytes `span` of the file as its elements."""
        if span is None:
            problems.append(f"storage {self.key[:40]!r} is missing")
            return
        size = min(span.stop, len(file)) - span.start
        if size < self.num_bytes:
            problems.append(
                f"storage {self.key[:40]!r} has {max(size, 0)} bytes, expected {self.num_bytes}"
            )
            return
        self.elements = np.frombuffer(file, self.dtype, self.size, span.start)


@dataclass(frozen=True, eq=False)
class LazyArray(Sealed):
    """Describes a tensor in a file. `read` copies it into memory; nothing is kept."""

    storage: TorchStorage
    offset: int  # elements
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # elements

    @property
    def kind(self) -> str:
        """Return the type of the elements as safetensors names it."""
        return self.storage.kind

    def read(self) -> np.ndarray:
        """Return fp32 of floats of any size; integers and truth values as they are."""
        view = self._view()
        if self.kind == "BF16":
            return (view.astype(np.uint32) << 16).view(np.float32)
        return view.astype(np.float32) if view.dtype.kind == "f" else view.copy()

    def _view(self) -> np.ndarray:
        elements = self.storage.elements
        assert elements is not None, "storages are placed before anything is read"
        if 0 in self.shape:
            return np.empty(self.shape, elements.dtype)
        strides = tuple(stride * elements.itemsize for stride in self.strides)
        return np.lib.stride_tricks.as_strided(
            elements[self.offset :], self.shape, strides, writeable=False
        )


class Storages:
    """Collects all storages that a pickle names, each once."""

    def __init__(self) -> None:
        self.by_key: dict[str, TorchStorage] = {}

    def load(
        self, tag: Any, kind: Any, key: Any, _location: Any, size: Any, *view: Any
    ) -> TorchStorage:
        """Return the storage of a persistent id. Raises ValueError."""
        is_storage = isinstance(kind, type) and issubclass(kind, Record) and kind.dotted in STORED
        if tag != "storage" or not is_storage:
            raise ValueError("a persistent id is not that of a storage")
        if not isinstance(key, str) or not _is_size(size):
            raise ValueError("a storage has no name or no size")
        if view not in ((), (None,)):
            raise ValueError(f"storage {key[:40]!r} is a part of another")
        storage = self.by_key.setdefault(key, TorchStorage(key, kind.dotted, size))
        if (storage.size, storage.class_name) != (size, kind.dotted):
            raise ValueError(f"storage {key[:40]!r} has two sizes or two types")
        return storage


def rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> LazyArray:
    """Return the tensor of a call of torch._utils._rebuild_tensor or _rebuild_tensor_v2. Raises
    ValueError.
    """
    if not (isinstance(storage, TorchStorage) and _is_size(offset)):
        raise ValueError("a tensor has no storage or no place in it")
    if not (_are_sizes(shape) and _are_sizes(strides) and len(shape) == len(strides)):
        raise ValueError("a tensor's shape or strides are no sizes")
    elements = math.prod(shape)
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if elements and (elements > storage.size or last >= storage.size):
        raise ValueError(f"a tensor of shape {list(shape)} does not fit its storage")
    return LazyArray(storage, offset, shape, strides)


def rebuild_parameter(tensor: Any, *_: Any) -> LazyArray:
    """Return the tensor of torch._utils._rebuild_parameter(data, requires_grad, hooks). Raises
    ValueError.
    """
    if not isinstance(tensor, LazyArray):
        raise ValueError("a parameter holds no tensor")
    return tensor


def rebuild_size(sizes: Any = ()) -> tuple[int, ...]:
    """Return the sizes of a torch.Size. Raises ValueError."""
    if not _are_sizes(sizes):
        raise ValueError("a torch.Size holds no sizes")
    return sizes


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST_ELEMENTS


def _are_sizes(values: Any) -> bool:
    is_short = isinstance(values, tuple) and len(values) <= MOST_DIMENSIONS
    return is_short and all(_is_size(value) for value in values)


def rebuild_ordered_dict(*arguments: Any) -> Items:
    """Return the items of an OrderedDict, which are set afterwards. Raises ValueError."""
    if arguments not in ((), ([],)):
        raise ValueError("an OrderedDict is made of something")
    return Items()


def rebuild_default_dict(*_factory: Any) -> Items:
    """Return the items of a defaultdict, without its default."""
    return Items()


def rebuild_device(*_arguments: Any) -> str:
    """Return the CPU for any torch.device: nothing depends on where tensors have been."""
    return "cpu"


CONSTRUCTORS: Mapping[str, Constructor] = {
    "collections.OrderedDict": rebuild_ordered_dict,
    "collections.defaultdict": rebuild_default_dict,
    "torch._utils._rebuild_tensor": rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": rebuild_tensor,
    "torch._utils._rebuild_parameter": rebuild_parameter,
    "torch.Size": rebuild_size,
    "torch.device": rebuild_device,
}


def is_torch_file(path: Path) -> bool:
    """Return whether a file begins like those of torch.save: a zip archive whose first member is
    the pickle.
    """
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
        return _read_file(path, names)
    except PickleProblem as error:
        raise CheckpointError(path, error.problems) from None
    except OSError as error:
        raise CheckpointError(path, [f"it cannot be read: {error.strerror or error}"]) from None


def _read_file(path: Path, names: frozenset[str]) -> Any:
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
    entries = _list_entries(path, len(mapped))
    root = _find_root(entries)
    pickle, order = entries[f"{root}data.pkl"], entries.get(f"{root}byteorder")
    if order is not None and mapped[order] != b"little":
        raise PickleProblem(["its numbers are not little-endian"])
    if pickle.stop - pickle.start > MOST_BYTES:
        raise PickleProblem([f"its pickle is larger than {MOST_BYTES} bytes"])
    storages = Storages()
    tree = _unpickle(io.BytesIO(mapped[pickle]), names, storages)
    problems: list[str] = []
    for key, storage in storages.by_key.items():
        storage.place(mapped, entries.get(f"{root}data/{key}"), problems)
    if problems:
        raise PickleProblem(problems)
    return tree


def _find_root(entries: Mapping[str, slice]) -> str:
    """Return the folder in the archive: it has the first name of the file, or is called
    "archive".
    """
    roots = [name.removesuffix("data.pkl") for name in entries if name.endswith("/data.pkl")]
    if len(roots) != 1:
        raise PickleProblem([f"the archive holds {len(roots)} pickles, expected one"])
    return roots[0]


def _list_entries(path: Path, size: int) -> dict[str, slice]:
    """Return the offsets of the archive's entries in the file, by name."""
    try:
        with open_archive(path) as archive, path.open("rb") as file:
            return {info.filename: _find_entry(info, file, size) for info in archive.infolist()}
    # RuntimeError: what zipfile says of a version of the format that it does not know.
    except (zipfile.BadZipFile, ArithmeticError, RuntimeError, ValueError, struct.error):
        raise PickleProblem(["the archive is damaged or cut short"]) from None


def _find_entry(info: zipfile.ZipInfo, file: IO[bytes], size: int) -> slice:
    """Return the offsets of an entry's bytes, after its local header."""
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
    are_texts = isinstance(keys, list) and all(isinstance(key, str) for key in keys)
    if not are_texts or set(keys) != storages.by_key.keys():
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
    if storages is None:
        return unpickle(stream, {}, names)
    return unpickle(stream, CONSTRUCTORS, names, storages.load)
