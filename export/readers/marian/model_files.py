"""Weights of Marian in `.npz` and `.bin` files. Nothing in them is unpickled."""

import math
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from export.readers.common.cursor import Cursor, MalformedFile
from models.files import open_archive
from models.safetensors import Array, Stored

OPTIONS = "special:model.yml"  # the options as YAML, among the arrays
MOST_DIMENSIONS = 8

# not there, not an archive, not of arrays, damaged, encrypted, compressed in unknown ways
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
ARCHIVE_KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "int8": "I8"}

VERSION = 1  # of the binary format
MOST_ITEMS = 20_000  # some hundred are usual
FLOAT32, FLOAT16, INT8, INTGEMM8 = 0x404, 0x402, 0x101, 0x4101
TYPES = {FLOAT32: "<f4", FLOAT16: "<f2", INT8: "i1", INTGEMM8: "i1"}
KINDS = {FLOAT32: "F32", FLOAT16: "F16", INT8: "I8", INTGEMM8: "F32"}  # as they are read
HEADER = np.dtype([("name", "<u8"), ("type", "<u8"), ("axes", "<u8"), ("bytes", "<u8")])
EMBEDDING = "Wemb"  # in the names of embeddings


@dataclass(frozen=True)
class Item:
    """One array, in the orientation in which Marian multiplies by it: [in, out].

    read: returns it as fp32, or as integers.
    multiplier: of an int8 array: a weight is level / multiplier.
    """

    shape: tuple[int, ...]
    kind: str
    read: Callable[[], Array]
    multiplier: float | None = None

    def as_tensor(self) -> Stored:
        return Stored(self.kind, self.shape, self.read)


def num_elements(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


def as_matrix(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Make vectors rows [1, n], as in Marian."""
    return (1, *shape) if len(shape) == 1 else shape


def read_archive(path: Path, problems: list[str]) -> dict[str, Item]:
    """Read `model.npz`: numpy arrays in a zip archive. Nothing in it is unpickled."""
    try:
        with open_archive(path) as archive:
            if damaged := archive.testzip():
                problems.append(f"{path.name}: {damaged} is damaged")
                return {}
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            return {name: _open_array(path, archive, name) for name in names}
    except UNREADABLE as error:
        problems.append(f"{path.name} cannot be read: {error}")
    return {}


def _open_array(path: Path, archive: zipfile.ZipFile, name: str) -> Item:
    """Return an array, of which only the header is read yet. Raises ValueError."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
        if header is None:
            raise ValueError(f"{name} is of numpy format {version}")
        shape, _, dtype = header(file)
    kind = ARCHIVE_KINDS.get(dtype.name, dtype.name)
    return Item(as_matrix(shape), kind, partial(_read_array, path, name))


def _read_array(path: Path, name: str) -> Array:
    with np.load(path, allow_pickle=False) as archive:
        array = archive[name]
    array = array.reshape(as_matrix(array.shape))
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def is_binary(path: Path) -> bool:
    """Return whether a file begins with the version of Marian's binary format."""
    try:
        with path.open("rb") as file:
            return file.read(8) == VERSION.to_bytes(8, "little")
    except OSError:
        return False


def read_binary(path: Path, problems: list[str]) -> dict[str, Item]:
    """Read a binary file, such as the int8 models of Firefox Translations and Bergamot.

    The layout is that of marian-dev's src/common/binary.cpp: the version, 1, and the number of
    items (uint64 each); for each item the lengths of its name, its type, the number of its axes and
    its bytes (uint64 each); all names, which end with a zero; all axes (int32); the number of bytes
    up to the next multiple of 256, and these; then the data of one item after the other.

    int8 arrays ("intgemm8") are transposed, [out, in], except the embeddings, whose rows are words.
    After the levels comes a float, the multiplier: a weight is its level / multiplier.
    """
    try:
        return _read_items(Cursor(np.memmap(path, np.uint8, "r")), path.name, problems)
    except (OSError, ValueError) as error:  # mapping an empty file is a ValueError
        problems.append(f"{path.name} cannot be read: {error}")
    except MalformedFile as error:
        problems.append(f"{path.name} {error}")
    return {}


@dataclass(frozen=True)
class _Header:
    name: str
    type: int
    shape: tuple[int, ...]
    num_bytes: int

    def problems(self) -> Iterator[str]:
        if self.type not in TYPES:
            yield f"{self.name} is of type {self.type:#x}, which is not supported"
        elif min(self.shape, default=0) < 1:
            yield f"{self.name} has shape {list(self.shape)}"
        elif self.num_bytes < self.expected_bytes:
            yield (
                f"{self.name} of shape {list(self.shape)} has {self.num_bytes} bytes,"
                f" expected {self.expected_bytes}"
            )

    @property
    def expected_bytes(self) -> int:
        multiplier = 4 if self.type == INTGEMM8 else 0
        return num_elements(self.shape) * np.dtype(TYPES[self.type]).itemsize + multiplier


def _read_items(cursor: Cursor, file: str, problems: list[str]) -> dict[str, Item]:
    if (version := cursor.number("<u8", "the version")) != VERSION:
        raise MalformedFile(f"is no Marian model: it begins with {version}, expected {VERSION}")
    items = {}
    headers = list(_read_headers(cursor))
    cursor.array("u1", cursor.number("<u8", "the gap"), "the gap before the data")
    for header in headers:
        data = cursor.array("u1", header.num_bytes, f"the data of {header.name}")
        wrong = [f"{file}: {problem}" for problem in header.problems()]
        if header.name in items:
            wrong.append(f"{file}: {header.name} is there twice")
        problems += wrong
        if not wrong:
            items[header.name] = _make_item(header, data)
    if cursor.num_left:
        raise MalformedFile(f"has {cursor.num_left} bytes after its last item")
    return items


def _read_headers(cursor: Cursor) -> Iterator[_Header]:
    count = cursor.number("<u8", "the number of items")
    if MOST_ITEMS < count <= cursor.num_left // HEADER.itemsize:  # else it is cut short
        raise MalformedFile(f"has {count} items, more than {MOST_ITEMS}")
    headers = cursor.array(HEADER, count, "the headers of the items")
    names = [_decode_name(cursor.array("u1", int(header["name"]), "a name")) for header in headers]
    for name, header in zip(names, headers, strict=True):
        if header["axes"] > MOST_DIMENSIONS:
            raise MalformedFile(f"has an item {name} of {header['axes']} axes")
        shape = cursor.array("<i4", int(header["axes"]), f"the shape of {name}").tolist()
        yield _Header(name, int(header["type"]), tuple(shape), int(header["bytes"]))


def _decode_name(data: Array) -> str:
    try:
        return bytes(data).rstrip(b"\0").decode()
    except UnicodeDecodeError:
        raise MalformedFile("has an item whose name is not UTF-8") from None


def _make_item(header: _Header, data: Array) -> Item:
    shape, kind = as_matrix(header.shape), KINDS[header.type]
    if header.type == INTGEMM8:
        levels = data[: num_elements(shape)].view(np.int8)
        multiplier = float(data[num_elements(shape) : header.expected_bytes].copy().view("<f4")[0])
        is_transposed = EMBEDDING not in header.name
        read = partial(_dequantise, levels, shape, multiplier, is_transposed=is_transposed)
        return Item(shape, kind, read, multiplier)
    values = data[: header.expected_bytes].view(TYPES[header.type]).reshape(shape)
    return Item(shape, kind, partial(_read_values, values))


def _read_values(values: Array) -> Array:
    return values.astype(np.float32) if values.dtype.kind == "f" else np.array(values)


def _dequantise(
    levels: Array, shape: tuple[int, ...], multiplier: float, *, is_transposed: bool
) -> Array:
    scale = np.float32(1 / multiplier)
    if is_transposed:
        return levels.reshape(shape[::-1]).T.astype(np.float32) * scale
    return levels.reshape(shape).astype(np.float32) * scale
