"""A cursor over the bytes of a binary file."""

from typing import Any

import numpy as np

from models.safetensors import Array


class MalformedFile(Exception):
    """The rest of a file cannot be parsed."""


class Cursor:
    """A position in a file. Raises MalformedFile at its end."""

    def __init__(self, memory: Array) -> None:
        """memory: uint8."""
        self.memory, self.offset = memory, 0

    @property
    def num_left(self) -> int:
        return len(self.memory) - self.offset

    def array(self, dtype: Any, count: int, what: str = "the next value") -> Array:
        """Return a view of the next `count` values. what: their name, for errors."""
        size = count * np.dtype(dtype).itemsize
        if size > self.num_left:
            raise MalformedFile(
                f"is cut short or damaged: {what} would need {size} bytes from byte"
                f" {self.offset} on, and {self.num_left} are left"
            )
        start, self.offset = self.offset, self.offset + size
        return self.memory[start : self.offset].view(dtype)

    def number(self, dtype: str, what: str = "the next value") -> int:
        """Return the next integer."""
        return int(self.array(dtype, 1, what)[0])

    def bytes(self, count: int) -> bytes:
        """Return a copy of the next `count` bytes."""
        return self.array("u1", count).tobytes()
