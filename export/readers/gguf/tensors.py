"""Reads tensors of GGUF files as fp32: blocks of ggml's formats, dequantised when asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

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
FLOATS = frozenset({Kind.F32, Kind.F16, Kind.BF16})
FOUR_BITS = frozenset({Kind.Q4_0, Kind.Q4_1, Kind.Q4_K})  # a scale and an offset for 32 weights


@dataclass(frozen=True)
class Tensor:
    """Describes a tensor as it lies in the file; `shape` is numpy's: the last axis is contiguous.

    data: uint8 [rows, bytes of a row], mapped.
    """

    kind: Kind
    shape: tuple[int, ...]
    data: Array

    def read(self) -> Array:
        """Dequantise it, in fp32. Damaged scales yield values that are not finite."""
        with np.errstate(all="ignore"):
            values = dequantize(np.asarray(self.data), self.kind)
        return values.reshape(self.shape).astype(np.float32, copy=False)


def kept_bits(kinds: Iterable[Kind]) -> Literal[4, 8] | None:
    """Tell how few bits keep matrices of these kinds; those of five and six bits need 8."""
    quantised = {*kinds} - FLOATS
    if not quantised:
        return None
    return 4 if quantised == {*kinds} <= FOUR_BITS else 8
