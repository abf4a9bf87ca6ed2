"""Reads checkpoints of toolkits that train with torch: fairseq, JoeyNMT, OpenNMT-py and Sockeye.

A toolkit is a table: how its models are told apart, and of each of them which options there are,
what they are called and which are refused, and the names of its tensors. One class reads them all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from export.readers.common.checkpoint_files import checkpoint_files, write_card
from export.readers.common.options import Options, limit_split_tokens
from export.readers.common.shapes import STACKS, Shapes
from export.readers.common.torch_files import LazyArray
from export.readers.common.weights import Names, StoredTensors, Table, read_weights
from export.readers.common.word_tokenizers import tokenizer_from_vocabulary
from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.safetensors import Arrays, Stored

MOST_LAYERS = 1000  # that are looked for
LONGEST = 1024  # tokens, for models without a limit: the engine's buffers need one

Supported = Mapping[str, tuple[Any, ...]]
Content = TypeVar("Content")


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of a model.

    words: in the order of their ids, of "source" and "target", or of "source" alone where both
        share them.
    special: tokens that are no text; those that a vocabulary lacks are passed over.
    unknown: the token of unknown words.
    pad, bos, eos, unk, start: ids of the target; `start` is what targets begin with.
    languages: the source's and the target's.
    """

    words: Mapping[str, list[str]]
    special: Sequence[str]
    unknown: str
    pad: int
    bos: int
    eos: int
    unk: int | None
    start: int
    languages: tuple[str, str] = (UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE)


@dataclass(frozen=True)
class ToolkitModel:
    """One kind of model of a toolkit, as an architecture of ours.

    supported: options that change what is computed, with the values that are computed here. The
        name of an option in a section has the section's name before it, with a dot.
    options: returns the values of our configuration, but for those of vocabularies.
    shapes: returns the shapes of all weights, for a configuration.
    names: returns the file's names of the weights, for a configuration.
    ignored: names of tensors that are not read, as regular expressions.
    """

    supported: Supported
    options: Callable[["ToolkitReader"], dict[str, Any]]
    shapes: Callable[[Any], Shapes]
    names: Callable[["ToolkitReader", Any], Names]
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True)
class Toolkit:
    """What the models of a toolkit have in common.

    tables: the names of the tables of source and target words, and of the output that all models
        have, where they do.
    find_model: returns the name of a model among `models`; None for one that is not supported,
        with a problem.
    longest_source: returns the length of the longest sentence of the training, where one is said.
    generation: returns the recommended options of decoding.
    """

    name: str
    tables: tuple[str, ...]
    models: Mapping[str, ToolkitModel]
    find_model: Callable[["ToolkitReader"], str | None]
    read_vocabularies: Callable[["ToolkitReader"], Vocabularies]
    supported: Supported = field(default_factory=dict)
    sources_end_with_eos: bool = True
    longest_source: Callable[["ToolkitReader"], Any] = lambda _: None
    generation: Callable[["ToolkitReader"], dict[str, Any]] = lambda _: {}


class ToolkitReader:
    """Reads one checkpoint of a toolkit. Everything that is wrong is added to `problems`.

    source_words, target_words: the rows of the tables. dim: their columns.
    """

    source_words: int
    target_words: int
    dim: int

    def __init__(
        self,
        toolkit: Toolkit,
        path: Path,
        options: Options,
        tensors: Mapping[str, Any],
        source: Path,
        vocabulary: Any = None,
    ) -> None:
        """path: the file of the weights. tensors: by name; whatever else is there is passed over.
        source: the file or folder that is read. vocabulary: what the file itself holds as one.
        """
        self.toolkit, self.path, self.source = toolkit, path, source
        self.vocabulary = vocabulary
        self.options, self.problems = options, options.problems
        stored = {
            str(name): Stored(tensor.kind, tensor.shape, tensor.read)
            for name, tensor in tensors.items()
            if isinstance(tensor, LazyArray | Stored)
        }
        self.tensors = StoredTensors(stored, self.problems)

    def read_checkpoint(self) -> Checkpoint:
        """Return the checkpoint, its weights still unread. Raises CheckpointError with every
        problem.
        """
        toolkit = self.toolkit
        self._check_supported(toolkit.supported)
        name = toolkit.find_model(self)
        if name is None:
            raise self.error()
        model = toolkit.models[name]
        self._check_supported(model.supported)
        self._measure_tables()
        vocabularies = toolkit.read_vocabularies(self)
        values = model.options(self)
        self.raise_problems()
        tokenizers = self._make_tokenizers(vocabularies)
        config = self._make_config(values, vocabularies)
        table = Table(model.names(self, config), ignored=model.ignored)
        weights = read_weights(model.shapes(config), table, self.tensors)
        self.tensors.refuse_unused()
        generation = toolkit.generation(self)
        if self.problems or tokenizers is None:
            raise self.error()
        return Checkpoint(
            self.source,
            config,
            Arrays(weights),
            Conventions(
                source_suffix=(vocabularies.eos,) if toolkit.sources_end_with_eos else (),
                prompt_prefix=(vocabularies.start,),
                stop=(vocabularies.eos,),
                unk=vocabularies.unk,
                generation=generation,
            ),
            checkpoint_files(self._write_card(config), *tokenizers),
        )

    def _check_supported(self, supported: Supported) -> None:
        for path, values in supported.items():
            *sections, name = path.split(".")
            options = self.options
            for section in sections:
                options = options.section(section)
            options.only(name, *values)

    def _measure_tables(self) -> None:
        source, target, *_ = self.matrix_shapes(*self.toolkit.tables)
        self.source_words, source_dim = source
        self.target_words, self.dim = target
        if source_dim != self.dim:
            sizes = f"{source_dim} and {self.dim}"
            self.problems.append(f"embeddings of {sizes} numbers are not supported")

    def _make_tokenizers(self, vocabularies: Vocabularies) -> tuple[bytes, bytes | None] | None:
        """Return `tokenizer.json` of the source, and of the target unless both have the same words;
        None, and problems, if they cannot be made.
        """
        folder, tokenizers = self.path.parent, list[bytes]()
        for side, words in vocabularies.words.items():
            special = [token for token in vocabularies.special if token in words]
            unknown = vocabularies.unknown
            if words and (
                tokenizer := tokenizer_from_vocabulary(
                    words, special, unknown, folder, side, self.problems
                )
            ):
                tokenizers.append(tokenizer)
        if len(tokenizers) < len(vocabularies.words):
            return None
        source_words, *others = vocabularies.words.values()
        is_other = bool(others) and others[0] != source_words
        return tokenizers[0], tokenizers[-1] if is_other else None

    def _make_config(self, values: dict[str, Any], vocabularies: Vocabularies) -> AnyConfig:
        source_language, target_language = vocabularies.languages
        try:
            return parse_config(
                {
                    **values,
                    "vocab_size": self.target_words,
                    "source_vocab_size": None if values["tied_embeddings"] else self.source_words,
                    "source_languages": (source_language,),
                    "target_languages": (target_language,),
                    "pad_id": vocabularies.pad,
                    "bos_id": vocabularies.bos,
                    "eos_id": vocabularies.eos,
                    "split_tokens": limit_split_tokens(self.toolkit.longest_source(self)),
                }
            )
        except ModelConfigError as error:
            self.problems += error.problems
            raise self.error() from None

    def _write_card(self, config: AnyConfig) -> bytes:
        path, name = self.path.resolve(), self.toolkit.name
        origin = f"Imported from the {name} checkpoint `{path.name}`, which says nothing"
        facts = f"Architecture: {config.architecture}", f"Vocabulary: {config.vocab_size:,} words"
        return write_card(path.stem, f"{origin} about its licence.", *facts)

    def matrix_shapes(self, *names: str) -> list[tuple[int, ...]]:
        """Return the rows and columns of matrices. Raises CheckpointError if one is missing or no
        matrix.
        """
        shapes, wrong = list[tuple[int, ...]](), list[str]()
        for name in names:
            tensor = self.tensors.stored.get(name)
            if tensor is None:
                wrong.append(f"{name} is missing")
            elif len(tensor.shape) != 2 or not min(tensor.shape):
                wrong.append(f"{name} has shape {list(tensor.shape)}, expected a matrix")
            else:
                shapes.append(tensor.shape)
        if wrong:
            self.problems += wrong
            raise self.error()
        return shapes

    def count_layers(self, name: str) -> int:
        """Return the number of layers that have a tensor with this name, in which `{}` is the
        layer's number.
        """
        stored, numbers = self.tensors.stored, range(MOST_LAYERS)
        return next((n for n in numbers if name.format(n) not in stored), MOST_LAYERS)

    def has_in_both(self, name: str) -> bool:
        """Return whether encoder and decoder have this norm. If only one of them has it, that is a
        problem.
        """
        has = [f"{stack}.{name}.weight" in self.tensors for stack in STACKS]
        if len(set(has)) > 1:
            self.problems.append(f"{STACKS[has.index(False)]}.{name}.weight is missing")
        return all(has)

    def read_beside(
        self, path: Path, read: Callable[[Path], Content], beside: str = "checkpoint"
    ) -> Content | None:
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

    def raise_problems(self) -> None:
        """Raise CheckpointError if there are any problems so far."""
        if self.problems:
            raise self.error()

    def error(self) -> CheckpointError:
        return CheckpointError(self.path, list(dict.fromkeys(self.problems)))  # some twice


def refuse_unequal(encoder: Any, decoder: Any, options: Options, name: str) -> None:
    """Add a problem if both sides differ in an option; `options` and `name` are the decoder's."""
    if encoder != decoder:
        options.refuse(name, f"must be {encoder}: unequal sides are not supported")
