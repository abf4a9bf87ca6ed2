"""The base of readers of toolkits that train with torch: fairseq, JoeyNMT, OpenNMT-py, Sockeye."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from export.readers.common.checkpoint_files import checkpoint_files, write_card
from export.readers.common.options import Options
from export.readers.common.tokenizers import tokenizer_from_vocabulary
from export.readers.common.torch_files import LazyArray
from export.readers.common.weights import Tensors, WeightReader
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import (
    Checkpoint,
    CheckpointError,
)
from models.conventions import Conventions
from models.safetensors import Arrays, Stored

LARGEST_LAYER = 1000  # number of a layer
LONGEST = 1024  # tokens, for models without a limit: the engine's buffers need one

Read = TypeVar("Read")


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
