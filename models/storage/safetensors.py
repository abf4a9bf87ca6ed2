"""Stores a checkpoint's weights: fp32, fp16, bf16, or matrices in int8. Numpy only.

In int8 each row of a matrix, what makes one number of its output, has a scale of its own, as
`attendant export --precision int8` gives it to encoder-decoders and recurrent models: unless the
export first multiplies matrices with each other, as Luong's score, the levels that were stored come
out of it, and nothing more is lost. In fp16 is what it leaves in floats, the tables of words and
positions and recurrent encoders, and what would not pay for scales: short rows, vectors,
convolutions.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from models.arrays import Array
from models.storage.stored import FLOATS, LEVELS, Stored, in_safetensors

MOST_LEVEL = 127
SMALLEST_RANGE = 1e-12  # keeps a row of zeros from dividing by zero
SHORTEST_ROW = 16
SCALE = ".scale"  # ends the name of what levels are multiplied by
# names of tables, and what torch calls the weights of its recurrent layers
LEFT_IN_FLOATS = re.compile(r"(^|_)embedding\.weight$|positions|weight_[ih]h_l\d")


class Storage(StrEnum):
    """Says how weights are stored; all are read as fp32."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"


TYPES = {
    Storage.FP32: np.dtype(np.float32),
    Storage.FP16: np.dtype(np.float16),
    Storage.BF16: np.dtype(ml_dtypes.bfloat16),
    Storage.INT8: np.dtype(np.float16),  # of what is no matrix
}


def write_weights(path: Path, weights: Mapping[str, Array], storage: Storage) -> None:
    """Write a safetensors file that everyone may read."""
    arrays: dict[str, Array] = {}
    for name, weight in weights.items():
        if storage is Storage.INT8 and is_matrix(name, weight):
            arrays[name], arrays[name + SCALE] = quantised(weight)
        else:
            arrays[name] = np.ascontiguousarray(weight, dtype=TYPES[storage])
    save_file(arrays, path)
    path.chmod(0o644)  # safetensors leaves it to its owner alone


def read_weights(path: Path, problems: list[str]) -> dict[str, Array]:
    """Read all weights in fp32, by name; what is wrong is added to the problems."""
    stored = in_safetensors(path, problems)
    found = {name: _read(name, stored, problems) for name in stored if not _is_scale(name, stored)}
    return {name: weight for name, weight in found.items() if weight is not None}


def is_matrix(name: str, weight: Array) -> bool:
    if weight.ndim != 2 or LEFT_IN_FLOATS.search(name):
        return False
    return len(weight) > 1 and weight.shape[1] >= SHORTEST_ROW


def quantised(weight: Array) -> tuple[Array, Array]:
    """Quantise f32 [out, in] -> levels i8 [out, in] and one's worth in each row, f32 [out]."""
    scale = np.maximum(np.abs(weight).max(axis=1), SMALLEST_RANGE) / MOST_LEVEL
    scale = scale.astype(np.float32)
    return np.rint(weight / scale[:, None]).astype(np.int8), scale


def _is_scale(name: str, stored: Mapping[str, Stored]) -> bool:
    matrix = stored.get(name.removesuffix(SCALE))
    return name.endswith(SCALE) and matrix is not None and matrix.kind == LEVELS


def _read(name: str, stored: Mapping[str, Stored], problems: list[str]) -> Array | None:
    each = stored[name]
    if each.kind in FLOATS:
        return np.array(each.read())
    scale = stored.get(name + SCALE)
    if each.kind == LEVELS and scale and scale.kind in FLOATS and scale.shape == each.shape[:1]:
        levels = each.read()
        shape = (-1, *[1] * (levels.ndim - 1))
        weight: Array = levels * scale.read().reshape(shape)
        return weight
    reason = "has no scale for each row" if each.kind == LEVELS else "is not of floats"
    problems.append(f"{name} {reason}: {each.kind} {list(each.shape)}")
    return None
