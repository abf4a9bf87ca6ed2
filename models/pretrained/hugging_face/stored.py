"""Tensors in files, memory-mapped: nothing is read before it is asked for.

The format of safetensors: 8 bytes with the length of the header, little-endian, a JSON header with
the type, the shape and the place of every tensor, then the data
(https://github.com/huggingface/safetensors#format). Their NumPy knows no bfloat16, so it is read
here. Files of several shards have an index that tells which tensor lies where.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from models.arrays import Array
from models.checkpoint import CheckpointError
from models.files import check_safetensors
from models.pretrained.hugging_face.options import read_options
from models.pretrained.pickles import read_torch
from models.pretrained.tensors import LazyArray

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MOST_SHARDS = 1000
MOST_INDEX_BYTES = 2**25  # 300,000 tensors
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"


@dataclass(frozen=True)
class Stored:
    """One tensor. `read` gives it as fp32; `kind` is its type in the file."""

    kind: str
    shape: tuple[int, ...]
    read: Callable[[], Array]


def stored_tensors(folder: Path, problems: list[str]) -> dict[str, Stored]:
    """All tensors of a folder by name, of safetensors where there are any."""
    found: dict[str, Stored] = {}
    for path in _files(folder, problems):
        is_pickle = path.suffix == ".bin"
        found |= _in_pickle(path, problems) if is_pickle else in_safetensors(path, problems)
    return found


def in_safetensors(path: Path, problems: list[str]) -> dict[str, Stored]:
    """The tensors of one file; what the library finds wrong with it is a problem."""
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
    return {name: _mapped(mapped, start, entry) for name, entry in header.items()}


def _mapped(mapped: Array, start: int, entry: Mapping[str, Any]) -> Stored:
    kind, shape = entry["dtype"], tuple(entry["shape"])
    offset = start + entry["data_offsets"][0]

    def read() -> Array:
        raw = np.frombuffer(mapped, FLOATS[kind], prod(shape), offset).reshape(shape)
        return as_float32(raw)

    return Stored(kind, shape, read)


def as_float32(raw: Array) -> Array:
    """Floats of any size; uint16 are bfloat16, the upper half of an fp32."""
    if raw.dtype == np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32, copy=False)


def _in_pickle(path: Path, problems: list[str]) -> dict[str, Stored]:
    """The tensors of one file of torch.save, which is read as data: nothing of it runs."""
    try:
        tree = read_torch(path)
    except CheckpointError as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
        return {}
    if not isinstance(tree, dict):
        problems.append(f"{path.name} holds no tensors by name")
        return {}
    tensors = {str(name): each for name, each in tree.items() if isinstance(each, LazyArray)}
    return {name: Stored(each.kind, each.shape, each.read) for name, each in tensors.items()}


def _files(folder: Path, problems: list[str]) -> Iterator[Path]:
    """Those that hold the weights; a folder with none has a problem."""
    for name in (SAFETENSORS, PICKLE):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            yield folder / name
            return
        if index.is_file():
            yield from _shards(index, problems)
            return
    problems.append(f"{SAFETENSORS} is missing")


def _shards(index: Path, problems: list[str]) -> Iterator[Path]:
    options = read_options(index, problems, most_bytes=MOST_INDEX_BYTES).section("weight_map")
    names = sorted(set(map(str, options.values.values())))
    if len(names) > MOST_SHARDS:
        problems.append(f"{index.name} names {len(names)} files, more than {MOST_SHARDS}")
        return
    for name in names:
        if Path(name).name == name:
            yield index.parent / name
        else:
            problems.append(f"{index.name}: {name!r} is no name of a file beside it")
