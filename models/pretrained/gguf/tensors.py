"""Tensors of GGUF files as fp32: blocks of ggml's formats, dequantised when they are asked for."""

from dataclasses import dataclass

import numpy as np
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from models.arrays import Array

READABLE = frozenset(
    {
        Kind.F32,
        Kind.F16,
        Kind.BF16,
        Kind.Q8_0,
        Kind.Q4_0,
        Kind.Q4_1,
        Kind.Q5_0,
        Kind.Q5_1,
        Kind.Q4_K,
        Kind.Q5_K,
        Kind.Q6_K,
    }
)


@dataclass(frozen=True)
class Tensor:
    """A tensor as it lies in the file; `shape` is numpy's: the last axis is contiguous.

    data: uint8 [rows, bytes of a row], mapped.
    """

    kind: Kind
    shape: tuple[int, ...]
    data: Array

    def read(self) -> Array:
        """Dequantised, in fp32. Damaged scales yield values that are not finite."""
        with np.errstate(all="ignore"):
            values = dequantize(np.asarray(self.data), self.kind)
        return values.reshape(self.shape).astype(np.float32, copy=False)
