"""Names the type of numpy arrays whose shape and element type stand in a comment beside them."""

from math import prod
from typing import Any

import numpy as np

from serving.bundle.manifest import TensorSpec

Array = np.ndarray[Any, Any]


def storage_type(dtype: str) -> "np.dtype[Any]":
    """Return the type that holds elements of a manifest's type: bfloat16, which numpy does not
    know, as the 16 bits that it is.
    """
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def bytes_per_row(spec: TensorSpec) -> int:
    """Return the size of a row of a tensor whose other axes have fixed sizes."""
    return prod(int(axis) for axis in spec.shape[1:]) * storage_type(spec.dtype).itemsize
