"""Maps tensors of safetensors files: nothing is read before it is asked for.

The format: 8 bytes with the length of the header, little-endian, a JSON header with the type, the
shape and the place of every tensor, then the data
(https://github.com/huggingface/safetensors#format). The library's NumPy part reads no bfloat16, so
it is read here.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from models.arrays import Array
from models.storage.files import check_safetensors

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
LEVELS = "I8"  # of weights that are stored with scales
TYPES = FLOATS | {LEVELS: "|i1"}


@dataclass(frozen=True)
class Stored:
    """Is one tensor. `read` gives it as fp32; `kind` is its type in the file."""

    kind: str
    shape: tuple[int, ...]
    read: Callable[[], Array]


def in_safetensors(path: Path, problems: list[str]) -> dict[str, Stored]:
    """Find the tensors of one file; what the library finds wrong with it is a problem."""
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
        raw = np.frombuffer(mapped, TYPES[kind], prod(shape), offset).reshape(shape)
        return as_float32(raw)

    return Stored(kind, shape, read)


def as_float32(raw: Array) -> Array:
    """Widen floats of any size; uint16 are bfloat16, the upper half of an fp32."""
    if raw.dtype == np.uint16:
        return (raw.astype(np.uint32) << 16).view(np.float32)
    return raw.astype(np.float32, copy=False)
