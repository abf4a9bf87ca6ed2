"""Weights in safetensors files: fp32, fp16, bf16, or matrices in int8. Needs numpy only.

In int8 each row of a matrix, which makes one number of the output, has a scale, as `attendant
export --precision int8` quantises encoder-decoders and recurrent models. If the export does not
first multiply matrices with each other, as for Luong's score, it finds the stored levels again and
nothing more is lost. Tensors that the export leaves in floats (tables of embeddings and positions,
recurrent encoders) and those too small to gain (short rows, vectors, convolutions) are stored in
fp16.

Files are mapped, and a tensor is read when it is used. The format: 8 bytes with the length of the
header, little-endian; a JSON header with type, shape and offsets of every tensor; the data
(https://github.com/huggingface/safetensors#format). The library's numpy part cannot read bfloat16,
so it is read here.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from models.files import check_safetensors

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LEVELS = "I8"  # of weights that are stored with scales
BYTES = "U8"
TYPES = FLOATS | {LEVELS: "|i1", BYTES: "|u1"}


Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class QuantisedBlocks:
    """A matrix [out, in] that its source holds in blocks of a row: scale * level + offset.

    levels: int8 [out, in]. scale: f32 [out, blocks]. offset: f32 [out, blocks]; None: 0 everywhere.
    """

    levels: Array
    scale: Array
    offset: Array | None = None

    @property
    def block_size(self) -> int:
        return self.levels.shape[1] // self.scale.shape[1]

    def read_columns(self, columns: Array) -> Array:
        """Return some columns of the matrix, f32 [out, columns]."""
        blocks = columns // self.block_size
        values: Array = self.levels[:, columns] * self.scale[:, blocks]
        return values if self.offset is None else values + self.offset[:, blocks]

    def read(self) -> Array:
        """Return the matrix, f32 [out, in]."""
        values = self.levels.reshape(*self.scale.shape, -1) * self.scale[:, :, None]
        if self.offset is not None:
            values += self.offset[:, :, None]
        return values.reshape(self.levels.shape)

    def change_rows(self, change: Callable[[Array], Array]) -> "QuantisedBlocks":
        """Return the matrix with other rows. change: moves, leaves out or adds whole rows."""
        offset = None if self.offset is None else change(self.offset)
        return QuantisedBlocks(change(self.levels), change(self.scale), offset)


@dataclass(frozen=True)
class Stored:
    """One tensor of a file. `kind` is its type there; `raw` returns it in that type, or as fp32.

    read_blocks: returns a quantised matrix as it lies in the file.
    """

    kind: str
    shape: tuple[int, ...]
    raw: Callable[[], Array]
    read_blocks: Callable[[], QuantisedBlocks] | None = None

    def read(self) -> Array:
        """Return it as fp32."""
        return as_float32(self.raw())

    def part(self, *index: Any) -> "Stored":
        """Return what NumPy finds at this index; the rest is not read where it is mapped."""
        shape = np.broadcast_to(0, self.shape)[index].shape
        return Stored(self.kind, shape, lambda: self.raw()[index])


def in_safetensors(path: Path, problems: list[str]) -> dict[str, Stored]:
    """Return the tensors of one file by name. Errors of the library are added to the problems."""
    try:
        check_safetensors(path)
        with safe_open(path, "np"):  # checks that the header fits the file
            pass
        mapped = np.memmap(path, np.uint8, "c")  # torch wants to be able to write
        (length,) = np.frombuffer(mapped, "<u8", 1)
        header: dict[str, Any] = json.loads(bytes(mapped[8 : 8 + int(length)]))
    except FileNotFoundError:
        problems.append(f"{path.name} is missing")
        return {}
    except (SafetensorError, OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        problems.append(f"{path.name} cannot be read: {reason or error}")
        return {}
    header.pop("__metadata__", None)
    start = 8 + int(length)
    return {name: _map_tensor(mapped, start, entry) for name, entry in header.items()}


def _map_tensor(mapped: Array, start: int, entry: Mapping[str, Any]) -> Stored:
    kind, shape = entry["dtype"], tuple(entry["shape"])
    offset = start + entry["data_offsets"][0]

    def raw() -> Array:
        return np.frombuffer(mapped, TYPES[kind], prod(shape), offset).reshape(shape)

    return Stored(kind, shape, raw)


def as_float32(raw: Array) -> Array:
    """Convert floats of any size to fp32; uint16 are bfloat16, the upper half of an fp32."""
    if raw.dtype == np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32, copy=False)


@dataclass(frozen=True)
class Quantised:
    """A weight that its source has in int8: levels of -127..127; the weight is level * scale.
    Export uses them instead of quantising again.

    input_range: the input of the product was clipped to +-input_range when the model was tuned for
        int8; None if each row has its own range.
    """

    scale: float
    input_range: float | None = None

    def of_input_times(self, factor: float) -> "Quantised":
        """Return the weight for an input that is larger by `factor`: it is smaller by `factor`."""
        wider = None if self.input_range is None else self.input_range * factor
        return Quantised(self.scale / factor, wider)


MOST_LEVEL = 127
SMALLEST_RANGE = 1e-12  # keeps a row of zeros from dividing by zero
SHORTEST_ROW = 16
SCALE = ".scale"  # ends the name of what levels are multiplied by
# names of tables, and what torch calls the weights of its recurrent layers
LEFT_IN_FLOATS = re.compile(r"(^|_)embedding\.weight$|positions|weight_[ih]h_l\d")


class Storage(StrEnum):
    """How weights are stored. All are read as fp32."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


STORAGE_TYPES = {
    Storage.FP32: np.dtype(np.float32),
    Storage.FP16: np.dtype(np.float16),
    Storage.BF16: np.dtype(ml_dtypes.bfloat16),
    Storage.INT8: np.dtype(np.float16),  # of what is no matrix
}


def write_weights(path: Path, weights: Mapping[str, Array], storage: Storage) -> None:
    """Write a safetensors file that every user may read."""
    arrays: dict[str, Array] = {}
    for name, weight in weights.items():
        if storage is Storage.INT8 and is_matrix(name, weight):
            arrays[name], arrays[name + SCALE] = quantised(weight)
        else:
            arrays[name] = np.ascontiguousarray(weight, dtype=STORAGE_TYPES[storage])
    save_file(arrays, path)
    path.chmod(0o644)  # safetensors leaves it to its owner alone


def read_weights(path: Path, problems: list[str]) -> dict[str, Array]:
    """Return all weights in fp32 by name. Problems are added to `problems`."""
    stored = in_safetensors(path, problems)
    arrays = {name: _read(name, stored, problems) for name in stored if not _is_scale(name, stored)}
    return {name: weight for name, weight in arrays.items() if weight is not None}


def is_matrix(name: str, weight: Array) -> bool:
    if weight.ndim != 2 or LEFT_IN_FLOATS.search(name):
        return False
    return len(weight) > 1 and weight.shape[1] >= SHORTEST_ROW


def quantised(weight: Array) -> tuple[Array, Array]:
    """Quantise f32 [out, in] to levels i8 [out, in] with one scale for each row, f32 [out]."""
    scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST_RANGE) / MOST_LEVEL
    scale = scale.astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def _is_scale(name: str, stored: Mapping[str, Stored]) -> bool:
    matrix = stored.get(name.removesuffix(SCALE))
    return name.endswith(SCALE) and matrix is not None and matrix.kind == LEVELS


def _read(name: str, stored: Mapping[str, Stored], problems: list[str]) -> Array | None:
    entry = stored[name]
    if entry.kind in FLOATS:
        return np.array(entry.read())
    scale = stored.get(name + SCALE)
    if entry.kind == LEVELS and scale and scale.kind in FLOATS and scale.shape == entry.shape[:1]:
        levels = entry.read()
        shape = (-1, *[1] * (levels.ndim - 1))
        weight: Array = levels * scale.read().reshape(shape)
        return weight
    reason = "has no scale for each row" if entry.kind == LEVELS else "is not of floats"
    problems.append(f"{name} {reason}: {entry.kind} {list(entry.shape)}")
    return None


@dataclass(frozen=True)
class BlockReader:
    """Reads a weight that its source holds in blocks, as fp32 or as it is."""

    read: Callable[[], Array]
    read_blocks: Callable[[], QuantisedBlocks]

    def __call__(self) -> Array:
        return self.read()


class Arrays(Mapping[str, Array]):
    """A mapping that reads an array every time it is used and keeps none, so that a large model
    fits into memory.
    """

    def __init__(self, readers: Mapping[str, Callable[[], Array]]) -> None:
        self._readers = dict(readers)

    def read_blocks(self, name: str) -> QuantisedBlocks | None:
        """Return a weight in the blocks of its source; None if that holds it otherwise."""
        reader = self._readers.get(name)
        return reader.read_blocks() if isinstance(reader, BlockReader) else None

    def __getitem__(self, name: str) -> Array:
        return self._readers[name]()

    def __contains__(self, name: object) -> bool:  # the mixin's would read the array
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)
