"""Reads GGUF files (ggml's docs/gguf.md, versions 2 and 3): keys with values, and named tensors.

The file is mapped and every count in it is held against its size, and against what any model has,
before anything is made: the reader of the `gguf` package takes arrays element by element, 2.4 s for
a vocabulary of 49,152 words, and hours for a byte array whose count was tampered with. Types and
block sizes are that package's.
"""

import math
import reprlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGUFValueType
from gguf.constants import GGMLQuantizationType as TensorType
from gguf.quants import dequantize

from export.readers.common.cursor import Cursor, MalformedFile
from export.readers.common.options import MOST_EXPERTS
from export.readers.gguf.blocks import FORMATS, read_blocks
from models.checkpoint import CheckpointError
from models.safetensors import Array, QuantisedBlocks, Stored

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_FIELDS = 10_000  # some dozens are usual
MOST_TENSORS = 50_000
MOST_TEXTS = 2**21  # in lists: tokens and merges; those of Gemma are 850,000
MAX_DIMS = 4  # ggml's GGML_MAX_DIMS
DEFAULT_ALIGNMENT = 32
ALIGNMENT_KEY = "general.alignment"
NUM_NAMED = 5  # tensors that a message lists
LENGTH = struct.Struct("<Q")  # of a text
NUMBERS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}


@dataclass(frozen=True)
class Tensor:
    """Describes a tensor as it lies in the file; `shape` is numpy's: the last axis is contiguous.

    data: uint8 [rows, bytes of a row], mapped.
    """

    kind: TensorType
    shape: tuple[int, ...]
    data: Array

    def read(self) -> Array:
        """Dequantise it, in fp32. Damaged scales yield values that are not finite."""
        with np.errstate(all="ignore"):
            if self.kind in FORMATS:
                values = self.read_blocks().read()
            else:
                values = dequantize(np.asarray(self.data), self.kind)
        return values.reshape(self.shape).astype(np.float32, copy=False)

    def read_blocks(self) -> QuantisedBlocks:
        """Return the levels and scales of a tensor whose kind is in `FORMATS`."""
        return read_blocks(self.kind, np.asarray(self.data))

    def as_stored(self) -> Stored:
        """Return what reads the tensor."""
        is_in_blocks = self.kind in FORMATS and len(self.shape) == 2
        blocks = self.read_blocks if is_in_blocks else None
        return Stored("F32", self.shape, self.read, blocks)


@dataclass(frozen=True)
class GGUFContainer:
    """fields: values by key: numbers, strings, lists of strings and arrays of numbers."""

    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, Tensor]

    def stored_tensors(self) -> dict[str, Stored]:
        """Return all tensors, read as fp32, and each expert of a layer as one of its own."""
        parts = [_split_experts(*item) for item in self.tensors.items()]
        tensors = {name: tensor for part in parts for name, tensor in part.items()}
        return {name: tensor.as_stored() for name, tensor in tensors.items()}


def _split_experts(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """Return each expert as a tensor of its own, and any other tensor as it is.

    `blk.0.ffn_up_exps.weight` is [experts, ...]; expert 3 becomes `blk.0.ffn_up_exps.3.weight`.
    """
    part, _, end = name.rpartition(".")
    if not part.endswith("_exps") or len(tensor.shape) < 2:
        return {name: tensor}
    count, *shape = tensor.shape
    if count > MOST_EXPERTS:
        return {name: tensor}
    data = tensor.data.reshape(count, -1, tensor.data.shape[-1])
    return {
        f"{part}.{number}.{end}": Tensor(tensor.kind, (*shape,), data[number])
        for number in range(count)
    }


@dataclass(frozen=True)
class _TensorInfo:
    name: str
    dims: tuple[int, ...]  # as in the file: the shortest step in memory first
    kind: int
    offset: int  # from the beginning of all data


def read_container(path: Path) -> GGUFContainer:
    """Raise CheckpointError with all that is wrong."""
    try:
        memory = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as error:
        raise CheckpointError(path, [f"cannot be read: {error}"]) from None
    cursor = _Cursor(memory)
    try:
        num_tensors, num_fields = _read_counts(cursor)
        fields = _read_fields(cursor, num_fields)
        infos = [_read_info(cursor) for _ in range(num_tensors)]
    except MalformedFile as error:
        raise CheckpointError(path, [str(error)]) from None
    problems: list[str] = []
    tensors = _place(infos, memory, _data_start(cursor.offset, fields, problems), problems)
    if problems:
        raise CheckpointError(path, problems)
    return GGUFContainer(path, fields, tensors)


class _Cursor(Cursor):
    """Reads texts too, of which there are many."""

    def __init__(self, memory: Array) -> None:
        super().__init__(memory)
        self._bytes = memory.data  # which NumPy's views are slow beside
        self.num_texts_left = MOST_TEXTS

    def texts(self, count: int) -> list[str]:
        """Read a list of texts."""
        if self.num_texts_left < count <= self.num_left // LENGTH.size:
            raise MalformedFile(f"has lists of more than {MOST_TEXTS} texts")
        self.num_texts_left -= count
        return [self.text() for _ in range(count)]

    def text(self) -> str:
        start = self.offset
        begin = start + LENGTH.size
        if begin <= len(self.memory):  # as fast as it can be
            end = begin + LENGTH.unpack_from(self._bytes, start)[0]
            if end <= len(self.memory):
                self.offset = end
                return _decode(self._bytes[begin:end], start)
        return _decode(memoryview(self.bytes(self.number("<u8"))), start)


def _decode(data: memoryview, start: int) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise MalformedFile(f"the string at byte {start} is not UTF-8") from None


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    """Read how many tensors and fields there are."""
    if (magic := cursor.bytes(len(MAGIC))) != MAGIC:
        raise MalformedFile(f"is no GGUF file: it begins with {magic!r}")
    version = cursor.number("<u4")
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise MalformedFile("is a big-endian file; only little-endian ones are read")
    if version not in VERSIONS:
        raise MalformedFile(f"has GGUF version {version}; 2 and 3 are known")
    num_tensors, num_fields = cursor.number("<u8"), cursor.number("<u8")
    if num_tensors > MOST_TENSORS or num_fields > MOST_FIELDS:
        raise MalformedFile(
            f"is damaged, or no model: it tells of {num_tensors} tensors and {num_fields} keys,"
            f" and at most {MOST_TENSORS} and {MOST_FIELDS} are read"
        )
    return num_tensors, num_fields


def _read_fields(cursor: _Cursor, num_fields: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for _ in range(num_fields):
        key = cursor.text()
        if key in fields:
            raise MalformedFile(f"has the key {reprlib.repr(key)} twice")
        fields[key] = _read_value(cursor, key, cursor.number("<u4"))
    return fields


def _read_value(cursor: _Cursor, key: str, kind: int) -> Any:
    if kind == GGUFValueType.STRING:
        return cursor.text()
    if kind == GGUFValueType.ARRAY:
        return _read_array(cursor, key)
    return cursor.array(_number_type(key, kind), 1)[0].item()


def _read_array(cursor: _Cursor, key: str) -> list[str] | Array:
    kind, count = cursor.number("<u4"), cursor.number("<u8")
    if kind == GGUFValueType.STRING:
        return cursor.texts(count)
    return cursor.array(_number_type(key, kind), count)


def _number_type(key: str, kind: int) -> str:
    if kind not in NUMBERS:
        raise MalformedFile(f"{reprlib.repr(key)} has a value of unknown type {kind}")
    return NUMBERS[GGUFValueType(kind)]


def _read_info(cursor: _Cursor) -> _TensorInfo:
    name, num_dims = cursor.text(), cursor.number("<u4")
    if not 1 <= num_dims <= MAX_DIMS:
        raise MalformedFile(f"tensor {reprlib.repr(name)} has {num_dims} dimensions")
    dims = tuple(cursor.array("<u8", num_dims).tolist())
    return _TensorInfo(name, dims, cursor.number("<u4"), cursor.number("<u8"))


def _data_start(end_of_header: int, fields: Mapping[str, Any], problems: list[str]) -> int:
    alignment = fields.get(ALIGNMENT_KEY, DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        problems.append(f"{ALIGNMENT_KEY}: must be a positive number (got {alignment!r})")
        return end_of_header
    return end_of_header + -end_of_header % alignment


def _place(
    infos: list[_TensorInfo], memory: Array, start: int, problems: list[str]
) -> dict[str, Tensor]:
    """Tensors over the file's memory; those that do not lie within it are one problem."""
    tensors: dict[str, Tensor] = {}
    beyond = []
    for info in infos:
        size = _row_bytes(info, problems)
        if size is None:
            continue
        if info.name in tensors:
            problems.append(f"{info.name}: there are two tensors of this name")
            continue
        shape = info.dims[::-1]
        num_rows = math.prod(shape[:-1])
        first, last = start + info.offset, start + info.offset + num_rows * size
        if last > len(memory):
            beyond.append(info.name)
            continue
        data = memory[first:last].reshape(num_rows, size)
        tensors[info.name] = Tensor(TensorType(info.kind), shape, data)
    if beyond:
        problems.append(
            f"is cut short or damaged: it ends at byte {len(memory)}, before the data of"
            f" {len(beyond)} of {len(infos)} tensors ends: {shorten_list(beyond)}"
        )
    return tensors


def _row_bytes(info: _TensorInfo, problems: list[str]) -> int | None:
    """Bytes of the fastest axis; None with a problem where the tensor cannot be read."""
    try:
        kind = TensorType(info.kind)
    except ValueError:
        problems.append(f"{info.name}: has the unknown tensor type {info.kind}")
        return None
    if kind not in READABLE:
        problems.append(f"{info.name}: tensors of type {kind.name} cannot be read")
        return None
    block, size = GGML_QUANT_SIZES[kind]
    if 0 in info.dims or info.dims[0] % block:
        shape = list(info.dims[::-1])
        problems.append(f"{info.name}: has shape {shape}, which blocks of {block} do not fill")
        return None
    return info.dims[0] // block * size


def shorten_list(names: list[str]) -> str:
    """Show the first of them, and how many more there are."""
    more = len(names) - NUM_NAMED
    return ", ".join(names[:NUM_NAMED]) + (f" and {more} more" if more > 0 else "")


FLOATS = frozenset({TensorType.F32, TensorType.F16, TensorType.BF16})
# Up to 16 levels at equal distances: a scale and an offset for 32 weights, or for 16 (Q2_K, Q3_K).
FOUR_BITS = frozenset(
    {
        TensorType.Q4_0,
        TensorType.Q4_1,
        TensorType.Q4_K,
        TensorType.Q3_K,
        TensorType.Q2_K,
    }
)
EIGHT_BITS = frozenset(
    {
        TensorType.Q8_0,
        TensorType.Q5_0,
        TensorType.Q5_1,
        TensorType.Q5_K,
        TensorType.Q6_K,
    }
)
UNEVEN = frozenset(
    {TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4}
)  # 16 levels at other distances
READABLE = FLOATS | FOUR_BITS | EIGHT_BITS | UNEVEN


def count_bits(kinds: Iterable[TensorType]) -> Literal[4, 8] | None:
    """Return the number of bits that keeps matrices of these kinds: 4 for levels at equal
    distances, else 8.
    """
    quantised = {*kinds} - FLOATS
    if not quantised:
        return None
    return 4 if quantised == {*kinds} <= FOUR_BITS else 8
