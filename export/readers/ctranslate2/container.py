"""CTranslate2's `model.bin`: named variables, as its python/ctranslate2/specs/model_spec.py writes
and its src/models/model.cc reads them.

The binary version (uint32); from version 2 on the name of the specification and its revision
(uint32); the number of variables (uint32). Of each variable its name, the number of its dimensions
(uint8), the dimensions (uint32 each), its type (uint8) and its bytes (uint32), or before version 4
the size of an element (uint8) and their number; then its data. From version 3 on follow the number
of aliases (uint32), and of each its name and that of the variable it stands for. Strings have their
length before them (uint16), and a zero behind.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from export.readers.common.cursor import Cursor, MalformedFile
from models.safetensors import FLOATS, Array, QuantisedBlocks, Stored, as_float32

NEWEST_VERSION, OLDEST_VERSION = 6, 2
KINDS = ("F32", "I8", "I16", "I32", "F16", "BF16")  # by the numbers of types
KINDS_BY_SIZE = {4: "F32", 2: "I16", 1: "I8"}  # before version 4
DTYPES = FLOATS | {"I8": "|i1", "I16": "<i2", "I32": "<i4"}
LEVELS = ("I8", "I16")
SCALE, ZERO = "_scale", "_zero"  # end the names of what belongs to a weight's levels
OLD_INT16_SCALE = np.float32(1000)  # of levels without a scale
MOST_VARIABLES = 100_000  # some hundred are usual
MOST_DIMENSIONS = 8
BLOCK_SIZE = 16  # that the columns of a matrix divide into where its levels are kept


@dataclass(frozen=True)
class ModelFile:
    """What a file holds.

    specification, revision: the kind of model, and the version of its variables' names.
    tensors: weights by name; levels are read as floats, multiplied by their scales.
    scalars: single numbers by name. texts: the texts among the rest, by name.
    bits: 8 where weights are levels of int8; None where they are floats, or levels of int16.
    """

    version: int
    specification: str
    revision: int
    tensors: Mapping[str, Stored]
    scalars: Mapping[str, int | float]
    texts: Mapping[str, str]
    bits: Literal[8] | None


@dataclass(frozen=True)
class _Variable:
    kind: str
    shape: tuple[int, ...]
    data: Array  # of this shape, where the file lies


def read_model_file(memory: Array) -> ModelFile:
    """Read a whole file, uint8, without its weights. Raises MalformedFile."""
    cursor = Cursor(memory)
    version = cursor.number("<u4", "the binary version")
    if version > NEWEST_VERSION or version == 0:
        raise MalformedFile(
            f"begins with {version}: binary versions {OLDEST_VERSION} to {NEWEST_VERSION} of"
            " CTranslate2 are read"
        )
    if version < OLDEST_VERSION:
        raise MalformedFile("is of binary version 1, of 2019: convert the model once more")
    specification = _read_string(cursor, "the name of the specification")
    revision = cursor.number("<u4", "the revision")
    variables = _read_variables(cursor, version)
    if version >= 3:
        _add_aliases(cursor, variables)
    if cursor.num_left:
        raise MalformedFile(f"has {cursor.num_left} bytes after its last variable")
    return _sort_variables(version, specification, revision, variables)


def _read_variables(cursor: Cursor, version: int) -> dict[str, _Variable]:
    variables: dict[str, _Variable] = {}
    for _ in range(_read_count(cursor, "variables")):
        name = _read_string(cursor, "the name of a variable")
        if name in variables:
            raise MalformedFile(f"has two variables called {name}")
        variables[name] = _read_variable(cursor, name, version)
    return variables


def _read_variable(cursor: Cursor, name: str, version: int) -> _Variable:
    num_dimensions = cursor.number("u1", f"the dimensions of {name}")
    if num_dimensions > MOST_DIMENSIONS:
        raise MalformedFile(f"has a variable {name} of {num_dimensions} dimensions")
    shape = tuple(cursor.array("<u4", num_dimensions, f"the shape of {name}").tolist())
    number = cursor.number("u1", f"the type of {name}")
    size = cursor.number("<u4", f"the size of {name}")
    if version >= 4:
        kind = KINDS[number] if number < len(KINDS) else None
    else:
        kind, size = KINDS_BY_SIZE.get(number), size * number
    if kind is None:
        raise MalformedFile(f"has a variable {name} of type {number}, which is not known")
    count = math.prod(shape)
    if (expected := count * np.dtype(DTYPES[kind]).itemsize) != size:
        raise MalformedFile(
            f"has a variable {name} of shape {list(shape)} in {size} bytes, expected {expected}"
        )
    return _Variable(kind, shape, cursor.array(DTYPES[kind], count, f"the data of {name}"))


def _add_aliases(cursor: Cursor, variables: dict[str, _Variable]) -> None:
    for _ in range(_read_count(cursor, "aliases")):
        alias = _read_string(cursor, "the name of an alias")
        name = _read_string(cursor, f"the variable of the alias {alias}")
        if alias in variables:
            raise MalformedFile(f"has two variables called {alias}")
        for end in ("", SCALE, ZERO):
            if name + end in variables:
                variables[alias + end] = variables[name + end]


def _read_count(cursor: Cursor, what: str) -> int:
    count = cursor.number("<u4", f"the number of {what}")
    if count > MOST_VARIABLES:
        raise MalformedFile(f"has {count} {what}, more than {MOST_VARIABLES}")
    return count


def _read_string(cursor: Cursor, what: str) -> str:
    length = cursor.number("<u2", f"the length of {what}")
    data = bytes(cursor.array("u1", length, what))
    if not data.endswith(b"\0"):
        raise MalformedFile(f"is damaged: {what} does not end with a zero")
    try:
        return data[:-1].decode()
    except UnicodeDecodeError:
        raise MalformedFile(f"is damaged: {what} is not UTF-8") from None


def _sort_variables(
    version: int, specification: str, revision: int, variables: dict[str, _Variable]
) -> ModelFile:
    tensors: dict[str, Stored] = {}
    scalars: dict[str, int | float] = {}
    texts: dict[str, str] = {}
    for name, variable in variables.items():
        if name.endswith((SCALE, ZERO)) and name.removesuffix(SCALE) in variables:
            continue
        if not variable.shape:
            scalars[name] = (
                as_float32(variable.data).item() if _is_float(variable) else int(variable.data[0])
            )
        elif name + ZERO in variables:
            raise MalformedFile(f"has a variable {name} quantised with zero points (AWQ)")
        elif name + SCALE in variables or (variable.kind == "I16" and len(variable.shape) > 1):
            tensors[name] = _store_levels(name, variable, variables.get(name + SCALE))
        elif variable.kind == "I8" and len(variable.shape) == 1:
            texts[name] = variable.data.tobytes().decode(errors="replace")
        else:
            tensors[name] = Stored(variable.kind, variable.shape, partial(_read_values, variable))
    has_bytes = any(
        variable.kind == "I8" and name in tensors for name, variable in variables.items()
    )
    return ModelFile(
        version, specification, revision, tensors, scalars, texts, 8 if has_bytes else None
    )


def _is_float(variable: _Variable) -> bool:
    return variable.kind in FLOATS


def _read_values(variable: _Variable) -> Array:
    return variable.data.reshape(variable.shape)


def _store_levels(name: str, variable: _Variable, scale: _Variable | None) -> Stored:
    """Return a weight that is its level divided by the scale: one of each row, or one of all.

    Raises MalformedFile where the scales do not fit.
    """
    if variable.kind not in LEVELS:
        raise MalformedFile(f"has a variable {name} of {variable.kind} with a scale")
    if scale is None:
        divisors = np.full(1, OLD_INT16_SCALE)
    elif not _is_float(scale) or scale.shape not in ((), (1,), variable.shape[:1]):
        raise MalformedFile(
            f"has a variable {name} of shape {list(variable.shape)} with scales of shape"
            f" {list(scale.shape)}"
        )
    else:
        divisors = as_float32(scale.data)
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise MalformedFile(f"has a variable {name} with scales that are no positive numbers")
    scales = 1 / divisors
    read = partial(_dequantise, variable, scales)
    is_in_blocks = (
        variable.kind == "I8" and len(variable.shape) == 2 and variable.shape[1] % BLOCK_SIZE == 0
    )
    blocks = partial(_read_blocks, variable, scales) if is_in_blocks else None
    return Stored("F32", variable.shape, read, blocks)


def _dequantise(variable: _Variable, scales: Array) -> Array:
    levels = variable.data.reshape(variable.shape).astype(np.float32)
    return levels * scales.reshape(-1, *[1] * (levels.ndim - 1))


def _read_blocks(variable: _Variable, scales: Array) -> QuantisedBlocks:
    """Return the matrix with a row as a block."""
    scale = np.broadcast_to(scales, variable.shape[:1])
    return QuantisedBlocks(variable.data.reshape(variable.shape), scale[:, None])
