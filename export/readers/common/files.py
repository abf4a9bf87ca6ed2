"""Files of a checkpoint and of a bundle: binary, YAML, and the model card."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from export.readers.common.options import _fields, _Plain
from models.checkpoint import CARD_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE, Checkpoint
from models.safetensors import Array


def checkpoint_files(card: bytes, source: bytes, target: bytes | None = None) -> dict[str, bytes]:
    """Return the files of a checkpoint by name.

    target: the tokenizer of the target; None if it is the source's.
    """
    files = {TOKENIZER_FILE: source, CARD_FILE: card}
    return files if target is None or target == source else files | {TARGET_TOKENIZER_FILE: target}


def card_of(title: str, origin: str, *facts: str) -> bytes:
    """Write the beginning of a model card in Markdown."""
    lines = [f"# {title}", "", origin, "", *(f"- {fact}" for fact in facts)]
    return ("\n".join(lines) + "\n").encode()


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


_Plain.add_multi_constructor("", _fields)


def noted(checkpoint: Checkpoint, notes: Collection[str]) -> Checkpoint:
    """Add the notes to the checkpoint and to its model card."""
    if not notes:
        return checkpoint
    lines = "".join(f"\nNote: {note}.\n" for note in notes)
    files = {**checkpoint.files, CARD_FILE: checkpoint.files.get(CARD_FILE, b"") + lines.encode()}
    return replace(checkpoint, notes=(*checkpoint.notes, *notes), files=files)
