"""What readers of several formats share: a checkpoint's files, a cursor over binary files, and the
base of readers of toolkits that train with torch (fairseq, JoeyNMT, OpenNMT-py and Sockeye).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from export.readers.common.options import Options
from export.readers.common.tokenizers import tokenizer_from_vocabulary
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
from serving.bundle.manifest import SPLIT_TOKENS

LARGEST_LAYER = 1000  # number of a layer
LONGEST = 1024  # tokens, for models without a limit: the engine's buffers need one

Read = TypeVar("Read")


def checkpoint_files(card: bytes, source: bytes, target: bytes | None = None) -> dict[str, bytes]:
    """Return the files of a checkpoint by name.

    target: the tokenizer of the target; None if it is the source's.
    """
    files = {TOKENIZER_FILE: source, CARD_FILE: card}
    return files if target is None or target == source else files | {TARGET_TOKENIZER_FILE: target}


def write_card(title: str, origin: str, *facts: str) -> bytes:
    """Return the beginning of a model card in Markdown."""
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


def add_notes(checkpoint: Checkpoint, notes: Collection[str]) -> Checkpoint:
    """Return the checkpoint with the notes added to it and to its model card."""
    if not notes:
        return checkpoint
    lines = "".join(f"\nNote: {note}.\n" for note in notes)
    files = {**checkpoint.files, CARD_FILE: checkpoint.files.get(CARD_FILE, b"") + lines.encode()}
    return replace(checkpoint, notes=(*checkpoint.notes, *notes), files=files)


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

    def read_beside(
        self, path: Path, read: Callable[[Path], Read], beside: str = "checkpoint"
    ) -> Read | None:
        """Return what `read` makes of a file beside the checkpoint; None, and a problem, if it is
        missing or damaged.
        """
        try:
            return read(path)
        except FileNotFoundError:
            self.problems.append(f"{path.name} is missing beside the {beside}")
        except (OSError, ValueError) as error:
            self.problems.append(f"{path.name} cannot be read: {error}")
        return None

    def read_words(self, path: Path, read: Callable[[Path], list[str]], expected: int) -> list[str]:
        """Return a vocabulary in the order of its ids; an empty one, and a problem, if its file
        cannot be read. expected: the rows of the embeddings.
        """
        words = self.read_beside(path, read)
        if words is not None and len(words) != expected:
            self.problems.append(
                f"{path.name} has {len(words)} words, the embeddings are of {expected}"
            )
        return words or []

    def tokenizers(
        self, vocabularies: Mapping[str, list[str]], special: Sequence[str], unknown: str
    ) -> tuple[bytes, bytes | None] | None:
        """Return `tokenizer.json` of the source, and of the target unless both have the same words;
        None, and problems, if they cannot be made.

        vocabularies: the words of "source" and "target", or of "source" alone where both share
        them. special: tokens that are no text; those that a vocabulary lacks are passed over.
        """
        folder, found = self.path.parent, list[bytes]()
        for side, words in vocabularies.items():
            present = [token for token in special if token in words]
            if words and (
                made := tokenizer_from_vocabulary(
                    words, present, unknown, folder, side, self.problems
                )
            ):
                found.append(made)
        if len(found) < len(vocabularies):
            return None
        source_words, *others = vocabularies.values()
        return found[0], found[-1] if others and others[0] != source_words else None

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
        return write_card(path.stem, f"{origin} about its licence.", *facts)


def limit_split_tokens(longest: Any) -> int | None:
    """Return the length of the longest sentence that a model was trained on as `split_tokens`;
    None where it says little, because few sentences come near it.
    """
    is_length = type(longest) is int and 2 <= longest < SPLIT_TOKENS
    return longest if is_length else None


def language_options(languages: Sequence[str], pad: int, bos: int, eos: int) -> dict[str, Any]:
    """Return our options of languages and special ids. languages: the source's, the target's."""
    source, target = languages
    return {
        "source_languages": (source,),
        "target_languages": (target,),
        "pad_id": pad,
        "bos_id": bos,
        "eos_id": eos,
    }
