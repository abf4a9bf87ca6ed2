"""Reads little-endian values of a mapped file one after the other, and never beyond its end."""

from typing import Any

import numpy as np

from models.arrays import Array


class MalformedFile(Exception):
    """Says that the rest of the file cannot be made sense of."""


class Cursor:
    """Where one is in a file; raises MalformedFile where that ends."""

    def __init__(self, memory: Array) -> None:
        """memory: uint8."""
        self.memory, self.offset = memory, 0

    @property
    def num_left(self) -> int:
        return len(self.memory) - self.offset

    def array(self, dtype: Any, count: int, what: str = "the next value") -> Array:
        """View `count` values of the file. what: its part, in words."""
        size = count * np.dtype(dtype).itemsize
        if size > self.num_left:
            raise MalformedFile(
                f"is cut short or damaged: {what} would need {size} bytes from byte"
                f" {self.offset} on, and {self.num_left} are left"
            )
        start, self.offset = self.offset, self.offset + size
        return self.memory[start : self.offset].view(dtype)

    def number(self, dtype: str, what: str = "the next value") -> int:
        """Read one integer."""
        return int(self.array(dtype, 1, what)[0])

    def bytes(self, count: int) -> bytes:
        """Copy as many bytes."""
        return self.array("u1", count).tobytes()
