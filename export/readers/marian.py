"""Marian and Bergamot folders: which files make up a model, and the model read from them.

A configuration (`config.yml`, `decoder.yml`) names the files; without one they are recognised by
their contents. Names are looked up in the folder itself only: of a path the last part counts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from export.readers.common.options import Options, read_options
from export.readers.common.toolkits import checkpoint_files, limit_split_tokens, write_card
from export.readers.marian_files import (
    Item,
    is_binary,
    read_archive,
    read_binary,
)
from export.readers.marian_options import (
    MOST_YAML_BYTES,
    config_of,
    is_recurrent,
    marian_names,
    read_marian_options,
    settings_path,
)
from export.readers.marian_recurrent_weights import RecurrentWeights
from export.readers.marian_vocabularies import (
    Vocabulary,
    is_shortlist,
    read_shortlist,
    read_vocabulary,
)
from export.readers.marian_weights import (
    MarianWeights,
    TransformerWeights,
    embedding_names,
)
from models.checkpoint import UNKNOWN_LANGUAGE, Checkpoint, CheckpointError
from models.conventions import Conventions
from models.files import read_text
from models.safetensors import Arrays

VOCABULARIES = (".spm", ".yml", ".yaml", ".json", ".txt", ".vocab")


@dataclass(frozen=True)
class MarianFolder:
    """A folder of Marian; `model`, `vocabularies` (source and target) and `shortlist` are files in
    it.
    """

    path: Path
    model: Path | None
    vocabularies: tuple[Path, Path] | None
    shortlist: Path | None
    options: Options = field(repr=False)  # of the configuration

    @property
    def is_shared(self) -> bool:
        """Return whether source and target have one vocabulary."""
        return self.vocabularies is not None and len({*self.vocabularies}) == 1


def can_read(path: Path) -> bool:
    """Return whether a path is a Marian model, or a folder with one."""
    try:
        return any(map(_is_model, path.iterdir() if path.is_dir() else [path]))
    except OSError:
        return False


def find_files(path: Path, problems: list[str]) -> MarianFolder:
    """`path` is the folder, or the model in it. What is missing is a problem."""
    folder = path.parent if path.is_file() else path
    options = _configuration(folder, problems)
    model = path if path.is_file() else _model(folder, options)
    vocabularies = _vocabulary_files(folder, options)
    found_shortlist = _shortlist_file(folder, options)
    return MarianFolder(folder, model, vocabularies, found_shortlist, options)


def _is_model(path: Path) -> bool:
    if not path.is_file():  # a pipe would never open
        return False
    return path.suffix == ".npz" or (path.suffix == ".bin" and is_binary(path))


def _configuration(folder: Path, problems: list[str]) -> Options:
    """Read the one YAML file that names models; empty if there is none."""
    read = [(path, _values(path, problems)) for path in _files(folder)]
    found = [(path, values) for path, values in read if values is not None]
    if len(found) > 1:
        names = ", ".join(path.name for path, _ in found)
        problems.append(f"more than one configuration names models: {names}")
    if not found:
        return _of_nematus(folder, problems)
    path, values = found[0]
    return Options(path.name, {str(name): value for name, value in values.items()}, problems)


def _of_nematus(folder: Path, problems: list[str]) -> Options:
    """Read the names of files from what Nematus keeps beside a model; empty if there is none."""
    models = [path for path in _files(folder) if _is_model(path) and settings_path(path).is_file()]
    if len(models) != 1:
        return Options("no configuration", {}, problems)
    settings = read_options(settings_path(models[0]), [])  # its problems are told with the model's
    names = settings.values.get("dictionaries")
    values = {"models": [models[0].name], "vocabs": names}
    return Options(settings.file, values, problems)


def _values(path: Path, problems: list[str]) -> dict[Any, Any] | None:
    """Read a configuration, which is a YAML file with a line that names models."""
    if path.suffix not in (".yml", ".yaml"):
        return None
    try:
        with path.open(encoding="utf-8") as file:
            if not _names_models(file.readline() for _ in range(200)):
                return None  # a vocabulary has the same suffix, and a line for every word
        values = yaml.safe_load(read_text(path, MOST_YAML_BYTES))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {' '.join(str(error).split())}")
        return None
    return values if isinstance(values, dict) and "models" in values else None


def _names_models(lines: Iterator[str]) -> bool:
    return any(line.startswith("models:") for line in lines)


def _model(folder: Path, options: Options) -> Path | None:
    named = _named(folder, options, "models")
    found = named or [path for path in _files(folder) if _is_model(path)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found)
    options.problems.append(
        f"several models, of which one is wanted: {names}" if found else "there is no Marian model"
    )
    return None


def _vocabulary_files(folder: Path, options: Options) -> tuple[Path, Path] | None:
    named = _named(folder, options, "vocabs")
    found = named or [path for path in _files(folder) if path.suffix == ".spm"]
    if 1 <= len(found) <= 2 and all(path.suffix in VOCABULARIES for path in found):
        source, target = found[0], found[-1]
        return (target, source) if target.name.startswith(("src", "source")) else (source, target)
    names = ", ".join(path.name for path in found) or "none"
    options.problems.append(f"one vocabulary (.spm) or two are wanted, found {names}")
    return None


def _shortlist_file(folder: Path, options: Options) -> Path | None:
    """Named first in the configuration's `shortlist`; else the one there is."""
    values = options.values.get("shortlist", [])
    if isinstance(values, list) and values and isinstance(values[0], str):
        return folder / Path(values[0]).name
    if values:
        options.refuse("shortlist", "must begin with the name of a file")
    found = [path for path in _files(folder) if is_shortlist(path)]
    return found[0] if len(found) == 1 and not options.values else None


def _named(folder: Path, options: Options, name: str) -> list[Path]:
    paths = [folder / Path(each).name for each in options.words(name)]
    missing = [path.name for path in paths if not path.is_file()]
    options.problems += [f"{each} is missing, which {options.file} names" for each in missing]
    return [path for path in paths if path.is_file()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


SHORTLIST_FILE = "shortlist.safetensors"
PAIR_IN_FILE = re.compile(r"(?:lex\.\d+\.\d+|model|vocab|srcvocab)\.([a-z]{2})-?([a-z]{2})\.")
PAIR_IN_FOLDER = re.compile(r"(?:^|.*-)([a-z]{2,3})-([a-z]{2,3})$|^([a-z]{2})([a-z]{2})(?:[-.]|$)")
MAX_LENGTH_FACTOR = 3.0  # Marian's default: tokens of a translation to one of its source


class _Vocabularies(NamedTuple):
    source: Vocabulary
    target: Vocabulary


def read_checkpoint(path: Path) -> Checkpoint:
    """Raises CheckpointError with everything that is wrong."""
    problems: list[str] = []
    folder = find_files(path, problems)
    items = _items(folder, problems)
    checkpoint = _checkpoint(folder, items, problems) if items else None
    if not items:
        _read_vocabularies(folder, None, problems)
    if problems or checkpoint is None:
        raise CheckpointError(path, list(dict.fromkeys(problems)))
    return checkpoint


def _items(folder: MarianFolder, problems: list[str]) -> dict[str, Item]:
    if folder.model is None:
        return {}
    read_file = read_archive if folder.model.suffix == ".npz" else read_binary
    return read_file(folder.model, problems)


def _read_vocabularies(
    folder: MarianFolder, sizes: tuple[int, int] | None, problems: list[str]
) -> _Vocabularies | None:
    """Read them; sizes: how many words the model has, of source and target."""
    if folder.vocabularies is None:
        return None
    source, target = (
        read_vocabulary(path, side, size, problems)
        for path, side, size in zip(
            folder.vocabularies, ("source", "target"), sizes or (None, None), strict=True
        )
    )
    return _Vocabularies(source, target) if source and target else None


def _checkpoint(
    folder: MarianFolder, items: dict[str, Item], problems: list[str]
) -> Checkpoint | None:
    options = read_marian_options(items, folder.model, problems)
    source, target = embedding_names(options)
    items = marian_names(items, has_one_embedding=source == target)
    sizes = _num_rows(items, source), _num_rows(items, target)
    vocabularies = _read_vocabularies(folder, sizes, problems)
    languages = languages_of(folder)
    common = {
        "source_languages": [languages[0]],
        "target_languages": [languages[1]],
        "shortlist": folder.shortlist is not None,
        "eos_id": vocabularies.target.eos if vocabularies else 0,
        "split_tokens": _split_tokens(folder.options),
    }
    shortlist = _shortlist(folder, sizes, problems)
    config = config_of(options, sizes, common)
    if config is None:
        return None
    reader: type[MarianWeights[Any]] = (
        RecurrentWeights if is_recurrent(options) else TransformerWeights
    )
    weights = reader(items, config, options, vocabularies and vocabularies.target.unk)
    if vocabularies is None:
        return None
    conventions = _conventions(folder, vocabularies, config.bos_id)
    if problems:
        return None
    tokenizers = vocabularies.source.tokenizer, vocabularies.target.tokenizer
    return Checkpoint(
        folder.path,
        config,
        Arrays(weights.readers),
        conventions,
        checkpoint_files(_card(folder, languages), *tokenizers) | shortlist,
        weights.quantised,
        bits=8 if weights.quantised else None,
    )


def _split_tokens(options: Options) -> int | None:
    """Return the length at which bergamot-translator cuts sentences, or that of the longest that
    Marian reads, where that is short.
    """
    if "max-length-break" in options:
        return options.integer("max-length-break") or None
    return limit_split_tokens(options.get("max-length"))


def _num_rows(items: dict[str, Item], name: str) -> int:
    return items[name].shape[0] if name in items else 1  # a missing one is found with the others


def _shortlist(
    folder: MarianFolder, sizes: tuple[int, int], problems: list[str]
) -> dict[str, bytes]:
    if folder.shortlist is None:
        return {}
    found = read_shortlist(folder.shortlist, sizes, problems, is_shared=folder.is_shared)
    return {SHORTLIST_FILE: found or b""}


def _conventions(folder: MarianFolder, vocabularies: _Vocabularies, bos: int) -> Conventions:
    """Sources are a text and </s>; the decoder begins with the zero vector. Beam size,
    normalisation and the longest translation are the configuration's, where it has them.
    """
    options = folder.options
    generation: dict[str, Any] = {
        "max_length_factor": options.number("max-length-factor", MAX_LENGTH_FACTOR)
    }
    if generation["max_length_factor"] <= 0:
        options.refuse("max-length-factor", "must be positive")
    if "beam-size" in options:
        generation["num_beams"] = options.integer("beam-size")
        if generation["num_beams"] < 1:
            options.refuse("beam-size", "must be positive")
    if "normalize" in options and generation.get("num_beams", 1) > 1:
        generation["length_penalty"] = options.number("normalize")
    return Conventions(
        source_suffix=(vocabularies.source.eos,),
        prompt_prefix=(bos,),
        stop=(vocabularies.target.eos,),
        unk=vocabularies.target.unk,
        targets=vocabularies.source.targets,
        generation=generation,
    )


def languages_of(folder: MarianFolder) -> tuple[str, str]:
    """From the names of files (`model.enpt.intgemm.alphas.bin`) or of the folder (`en-pt`)."""
    names: list[tuple[re.Pattern[str], str]] = [
        (PAIR_IN_FILE, path.name) for path in (folder.shortlist, folder.model) if path
    ]
    for pattern, name in (*names, (PAIR_IN_FOLDER, folder.path.resolve().name)):
        if match := pattern.match(name):
            source, target = (part for part in match.groups() if part)
            return source, target
    return UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE


def _card(folder: MarianFolder, languages: tuple[str, str]) -> bytes:
    paths = filter(None, (folder.model, *(folder.vocabularies or ()), folder.shortlist))
    facts = [f"`{path.name}`: {path.stat().st_size:,} bytes" for path in dict.fromkeys(paths)]
    origin = f"A Marian model, {languages[0]} to {languages[1]}, read from:"
    return write_card(folder.path.resolve().name, origin, *facts)
