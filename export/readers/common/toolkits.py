"""A model in a checkpoint of torch: options and tensors, for the readers of research toolkits."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from export.readers.common.options import Options
from export.readers.common.torch_files import LazyArray
from export.readers.common.weights import Tensors, WeightReader
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import (
    CARD_FILE,
    TARGET_TOKENIZER_FILE,
    TOKENIZER_FILE,
    Checkpoint,
    CheckpointError,
)
from models.conventions import Conventions
from models.safetensors import Array, Arrays, Stored


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


def noted(checkpoint: Checkpoint, notes: Collection[str]) -> Checkpoint:
    """Add the notes to the checkpoint and to its model card."""
    if not notes:
        return checkpoint
    lines = "".join(f"\nNote: {note}.\n" for note in notes)
    files = {**checkpoint.files, CARD_FILE: checkpoint.files.get(CARD_FILE, b"") + lines.encode()}
    return replace(checkpoint, notes=(*checkpoint.notes, *notes), files=files)


LARGEST_LAYER = 1000  # number of a layer
LONGEST = 1024  # tokens, where a model knows no limit: our buffers need one


class TorchModel:
    """The options and tensors of a checkpoint. Everything that is wrong is added to `problems`."""

    def __init__(
        self,
        path: Path,
        toolkit: str,
        options: Mapping[str, Any],
        state: Mapping[str, Any],
        problems: list[str],
    ) -> None:
        self.path, self.toolkit, self.problems = path, toolkit, problems
        self.options = Options("options", options, problems)
        stored = {
            str(name): Stored(each.kind, each.shape, each.read)
            for name, each in state.items()
            if isinstance(each, LazyArray | Stored)
        }
        self.tensors = Tensors(stored, problems)

    def dims(self, *names: str) -> list[tuple[int, ...]]:
        """Return the rows and columns of matrices. Raises CheckpointError if any is missing."""
        shapes = [
            self.tensors.stored[name].shape if name in self.tensors.stored else None
            for name in names
        ]
        for name, shape in zip(names, shapes, strict=True):
            if shape is None:
                self.problems.append(f"{name} is missing")
            elif len(shape) != 2 or not min(shape):
                self.problems.append(f"{name} has shape {list(shape)}, expected a matrix")
        self.check()
        return [shape for shape in shapes if shape is not None]

    def count(self, name: str) -> int:
        """Return the number of layers that have a tensor with this name, in which `{}` is the
        layer's number.
        """
        numbers = range(LARGEST_LAYER)
        return next(
            (n for n in numbers if name.format(n) not in self.tensors.stored), LARGEST_LAYER
        )

    def configured(self, values: Mapping[str, Any]) -> AnyConfig:
        """Return our configuration with these values. Raises CheckpointError."""
        try:
            return parse_config(dict(values))
        except ModelConfigError as error:
            self.problems += error.problems
            raise self.error() from None

    def checkpoint(
        self,
        config: AnyConfig,
        weights: Mapping[str, WeightReader],
        conventions: Conventions,
        tokenizers: tuple[bytes, bytes | None] | None,
    ) -> Checkpoint:
        """Return the checkpoint; its weights are read later. Raises CheckpointError."""
        self.tensors.finish()
        if self.problems or tokenizers is None:
            raise self.error()
        files = checkpoint_files(self._card(config), *tokenizers)
        return Checkpoint(self.path, config, Arrays(weights), conventions, files)

    def check(self) -> None:
        """Raise CheckpointError if there are any problems so far."""
        if self.problems:
            raise self.error()

    def error(self) -> CheckpointError:
        return CheckpointError(self.path, self.problems)

    def _card(self, config: AnyConfig) -> bytes:
        path = self.path.resolve()
        origin = f"Imported from the {self.toolkit} checkpoint `{path.name}`, which says nothing"
        facts = f"Architecture: {config.architecture}", f"Vocabulary: {config.vocab_size:,} words"
        return card_of(path.stem, f"{origin} about its licence.", *facts)
