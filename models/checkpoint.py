"""Checkpoint folders: `config.json`, `model.safetensors`, `tokenizer.json`. Reading and averaging
need numpy only.

Nothing is ever unpickled. Weights are read as fp32, however they are stored. Checkpoints of one
shape can be averaged (model soups, Wortsman et al. 2022): runs that continue from the same weights
lie close together, and their average is mostly better than each.
"""

import lzma
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from models.architectures.registry import AnyConfig, ModelConfigError, parse_config
from models.configs.base import TranslationModelConfig
from models.conventions import Conventions, own_conventions
from models.files import MOST_BYTES, read_file, read_json
from models.safetensors import Array, Quantised, Storage, read_weights, write_weights

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
CARD_FILE = "README.md"
QUALITY_FILE = "quality.json"
UNKNOWN_LANGUAGE = "und"  # of BCP 47: undetermined
CURVE_FILE = "curve.png"
WORDS_FILE = "words.txt"  # that it knows of the languages it reads, a line each
STORED_WORDS_FILE = "words.txt.xz"
# Names of files and folders that many models have, and hashes of commits.
_SAYS_NOTHING = re.compile(r"(models?|pytorch_model|checkpoints?|snapshots?|hf|onnx|[0-9a-f]{40})?")
_TIMESTAMP = re.compile(r"(?<=[a-z])-\d{9,}$")  # of a release, as Bergamot's folders have them
OTHER_FILES = (TOKENIZER_FILE, WORDS_FILE, CARD_FILE, QUALITY_FILE, CURVE_FILE)


class CheckpointError(Exception):
    """Raised when there is no usable checkpoint; `problems` lists everything found wrong."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        super().__init__(f"{path}: " + "; ".join(problems))
        self.path = path
        self.problems = problems


@dataclass(frozen=True)
class Checkpoint:
    """A trained model as read from disk.

    folder: the folder or file it was read from.
    weights: fp32 arrays by state-dict name.
    files: what a bundle takes over as it is, by name: `tokenizer.json`, where the target has
        another one `target_tokenizer.json`, the lexical shortlist, the model card, figures.
    quantised: how the source holds weights in int8, by the names of those it does.
    notes: what whoever exports it should know.
    bits: so few keep the layers' matrices as the source has them; None where those are floats.
    origin: the name by which it was pulled; None if it was not.
    """

    folder: Path
    config: AnyConfig
    weights: Mapping[str, Array]
    conventions: Conventions
    files: Mapping[str, bytes] = field(repr=False)
    quantised: Mapping[str, Quantised] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    bits: Literal[4, 8] | None = None
    origin: str | None = None

    def with_languages(self, source: str | None, target: str | None) -> "Checkpoint":
        """Return the checkpoint with one source and one target language. Raises CheckpointError if
        it has languages of its own.
        """
        codes = {"source_languages": source, "target_languages": target}
        changes = {field: (code,) for field, code in codes.items() if code is not None}
        problems = [
            f"{field.replace('_', ' ')} are {', '.join(current)}: they cannot be changed"
            for field in changes
            if (current := getattr(self.config, field, ("none",))) != (UNKNOWN_LANGUAGE,)
        ]
        if problems:
            raise CheckpointError(self.folder, problems)
        return replace(self, config=self.config.model_copy(update=changes))

    def with_split_tokens(self, split_tokens: int) -> "Checkpoint":
        """Return the checkpoint with this limit of sentences. Raises CheckpointError if it is no
        translator with an encoder.
        """
        if not isinstance(self.config, TranslationModelConfig):
            message = "split_tokens is of translators with an encoder alone"
            raise CheckpointError(self.folder, [message])
        return replace(self, config=self.config.model_copy(update={"split_tokens": split_tokens}))

    @property
    def name(self) -> str:
        """Return the name of the file or folder, or of a folder above it if that says nothing: the
        repository's in a cache of the Hugging Face hub, a run's of its `checkpoint`.
        """
        path = self.folder.resolve()
        names = [
            path.stem if path.is_file() else path.name,
            *(parent.name for parent in path.parents),
        ]
        telling_names = (name for name in names if not _SAYS_NOTHING.fullmatch(name))
        name = next(telling_names, names[0])
        return _TIMESTAMP.sub("", re.sub("^models--.*--", "", name))

    @property
    def tokenizer(self) -> str:
        """Return the tokenizer of both sides, or of the source, as JSON."""
        return self.files[TOKENIZER_FILE].decode()

    @property
    def target_tokenizer(self) -> str:
        return self.files.get(TARGET_TOKENIZER_FILE, self.files[TOKENIZER_FILE]).decode()


def is_checkpoint(folder: Path) -> bool:
    """Return whether a folder holds a checkpoint in this project's format, valid or not: it is told
    from others by the key `architecture`.
    """
    try:
        config = read_json(folder / CONFIG_FILE)
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and "architecture" in config


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint folder. Raises CheckpointError listing every problem."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(folder, ["there is no such folder"])
    problems: list[str] = []
    config = _read_config(folder / CONFIG_FILE, problems)
    weights = read_weights(folder / WEIGHTS_FILE, problems)
    paths = [folder / name for name in OTHER_FILES]
    files = {path.name: read_file(path) for path in paths if path.is_file()}
    if (folder / STORED_WORDS_FILE).is_file():
        files[WORDS_FILE] = _read_words(folder / STORED_WORDS_FILE, problems)
    if TOKENIZER_FILE not in files:
        problems.append(f"{TOKENIZER_FILE} is missing")
    if problems or config is None:
        raise CheckpointError(folder, problems)
    return Checkpoint(folder, config, weights, own_conventions(config), files)


def save_checkpoint(
    folder: str | Path,
    config: AnyConfig,
    weights: Mapping[str, Array],
    tokenizer_json: str,
    storage: Storage = Storage.FP32,
) -> None:
    """Write a checkpoint folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG_FILE).write_text(config.model_dump_json(indent=2) + "\n", encoding="utf-8")
    (folder / TOKENIZER_FILE).write_text(tokenizer_json, encoding="utf-8")
    write_weights(folder / WEIGHTS_FILE, weights, storage)


def write_words(folder: Path, words: bytes) -> None:
    """Write the words that a checkpoint knows."""
    (folder / STORED_WORDS_FILE).write_bytes(lzma.compress(words, preset=9))


def _read_words(path: Path, problems: list[str]) -> bytes:
    try:
        with lzma.open(path) as file:
            words = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, lzma.LZMAError) as error:
        problems.append(f"{path.name} cannot be read: {error}")
        return b""
    if len(words) > MOST_BYTES:
        problems.append(f"{path.name} holds more than {MOST_BYTES >> 20} MiB")
    return words


def _read_config(path: Path, problems: list[str]) -> AnyConfig | None:
    try:
        return parse_config(read_json(path))
    except FileNotFoundError:
        problems.append(f"{path.name} is missing")
    except ModelConfigError as error:
        problems += [f"{path.name}: {problem}" for problem in error.problems]
    except ValueError as error:
        problems.append(f"{path.name} {error}")
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {error.strerror}")
    return None


def average_checkpoints(folders: Sequence[Path], shares: Sequence[float], output: Path) -> None:
    """Write the average of all weights. Everything else is taken from the last checkpoint, without
    its figures.

    folders: two or more, of the same shape and vocabulary.
    shares: one for each folder, above 0; only their ratios matter.

    Raises CheckpointError for a folder that is no checkpoint or does not fit the last one, and
    OSError.
    """
    last = load_checkpoint(folders[-1])
    total = sum(shares)
    weights = {name: np.zeros_like(weight) for name, weight in last.weights.items()}
    for folder, share in zip(folders, shares, strict=True):
        checkpoint = load_checkpoint(folder)
        _check_fits(checkpoint, last)
        for name, weight in checkpoint.weights.items():
            weights[name] += np.float32(share / total) * weight
    _save(output, last, weights)


def _check_fits(checkpoint: Checkpoint, last: Checkpoint) -> None:
    """Raise CheckpointError if the shapes differ. Domain and dropout may differ, because no weights
    depend on them.
    """
    one, other = (
        part.config.model_dump(exclude={"domain", "dropout"}) for part in (checkpoint, last)
    )
    wrong = [
        f"{key} is {one.get(key)}, of {last.folder} it is {other.get(key)}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]
    if not wrong and _shapes(checkpoint) != _shapes(last):
        wrong = [f"its weights have other names or shapes than those of {last.folder}"]
    if checkpoint.tokenizer != last.tokenizer:
        wrong.append(f"it has another tokenizer than {last.folder}")
    if wrong:
        raise CheckpointError(checkpoint.folder, wrong)


def _shapes(checkpoint: Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: weight.shape for name, weight in checkpoint.weights.items()}


def _save(output: Path, last: Checkpoint, weights: dict[str, Array]) -> None:
    save_checkpoint(output, last.config, weights, last.tokenizer)
    if WORDS_FILE in last.files:
        write_words(output, last.files[WORDS_FILE])
    for name in last.files.keys() - {QUALITY_FILE, WORDS_FILE}:
        (output / name).write_bytes(last.files[name])
