"""Which files of a Marian or Bergamot folder make up a model.

A configuration (`config.yml`, `decoder.yml`) names the files; without one they are recognised by
their contents. Names are looked up in the folder itself only: of a path the last part counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from export.readers.common.options import MOST_YAML_BYTES, Options, read_options
from export.readers.marian.model_files import is_binary
from export.readers.marian.nematus import settings_path
from export.readers.marian.shortlists import is_shortlist
from models.files import read_text

VOCABULARY_SUFFIXES = (".spm", ".yml", ".yaml", ".json", ".txt", ".vocab")
MOST_LINES = 200  # of a configuration; a vocabulary has the same suffix, and a line for every word


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
    def has_one_vocabulary(self) -> bool:
        """Return whether source and target have one vocabulary."""
        return self.vocabularies is not None and len({*self.vocabularies}) == 1


def can_read(path: Path) -> bool:
    """Return whether a path is a Marian model, or a folder with one."""
    try:
        return any(map(_is_model, path.iterdir() if path.is_dir() else [path]))
    except OSError:
        return False


def find_files(path: Path, problems: list[str]) -> MarianFolder:
    """Find the files of a model. `path` is the folder, or the model in it. What is missing is a
    problem.
    """
    folder = path.parent if path.is_file() else path
    options = _read_configuration(folder, problems)
    model = path if path.is_file() else _find_model(folder, options)
    vocabularies = _find_vocabularies(folder, options)
    return MarianFolder(folder, model, vocabularies, _find_shortlist(folder, options), options)


def _is_model(path: Path) -> bool:
    if not path.is_file():  # a pipe would never open
        return False
    return path.suffix == ".npz" or (path.suffix == ".bin" and is_binary(path))


def _read_configuration(folder: Path, problems: list[str]) -> Options:
    """Read the one YAML file that names models; empty if there is none."""
    configurations = {path: _read_yaml(path, problems) for path in _list_files(folder)}
    named = [(path, values) for path, values in configurations.items() if values is not None]
    if len(named) > 1:
        names = ", ".join(path.name for path, _ in named)
        problems.append(f"more than one configuration names models: {names}")
    if not named:
        return _read_nematus_names(folder, problems)
    path, values = named[0]
    return Options(path.name, {str(name): value for name, value in values.items()}, problems)


def _read_nematus_names(folder: Path, problems: list[str]) -> Options:
    """Read the names of files from what Nematus keeps beside a model; empty if there is none."""
    paths = _list_files(folder)
    models = [path for path in paths if _is_model(path) and settings_path(path).is_file()]
    if len(models) != 1:
        return Options("no configuration", {}, problems)
    # Its problems are reported when the model's options are read.
    settings = read_options(settings_path(models[0]), [])
    values = {"models": [models[0].name], "vocabs": settings.values.get("dictionaries")}
    return Options(settings.file, values, problems)


def _read_yaml(path: Path, problems: list[str]) -> dict[Any, Any] | None:
    """Read a configuration, which is a YAML file with a line that names models."""
    if path.suffix not in (".yml", ".yaml"):
        return None
    try:
        with path.open(encoding="utf-8") as file:
            if not _names_models(file.readline() for _ in range(MOST_LINES)):
                return None
        values = yaml.safe_load(read_text(path, MOST_YAML_BYTES))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {' '.join(str(error).split())}")
        return None
    return values if isinstance(values, dict) and "models" in values else None


def _names_models(lines: Iterator[str]) -> bool:
    return any(line.startswith("models:") for line in lines)


def _find_model(folder: Path, options: Options) -> Path | None:
    models = _named_files(folder, options, "models")
    models = models or [path for path in _list_files(folder) if _is_model(path)]
    if len(models) == 1:
        return models[0]
    names = ", ".join(path.name for path in models)
    options.problems.append(
        f"several models, of which one is wanted: {names}" if models else "there is no Marian model"
    )
    return None


def _find_vocabularies(folder: Path, options: Options) -> tuple[Path, Path] | None:
    paths = _named_files(folder, options, "vocabs")
    paths = paths or [path for path in _list_files(folder) if path.suffix == ".spm"]
    if 1 <= len(paths) <= 2 and all(path.suffix in VOCABULARY_SUFFIXES for path in paths):
        source, target = paths[0], paths[-1]
        return (target, source) if target.name.startswith(("src", "source")) else (source, target)
    names = ", ".join(path.name for path in paths) or "none"
    options.problems.append(f"one vocabulary (.spm) or two are wanted, found {names}")
    return None


def _find_shortlist(folder: Path, options: Options) -> Path | None:
    """Return the file that the configuration's `shortlist` names first; without a configuration,
    the only shortlist in the folder.
    """
    values = options.values.get("shortlist", [])
    if isinstance(values, list) and values and isinstance(values[0], str):
        return folder / Path(values[0]).name
    if values:
        options.refuse("shortlist", "must begin with the name of a file")
    shortlists = [path for path in _list_files(folder) if is_shortlist(path)]
    return shortlists[0] if len(shortlists) == 1 and not options.values else None


def _named_files(folder: Path, options: Options, name: str) -> list[Path]:
    paths = [folder / Path(path).name for path in options.words(name)]
    missing = [path.name for path in paths if not path.is_file()]
    options.problems += [f"{file} is missing, which {options.file} names" for file in missing]
    return [path for path in paths if path.is_file()]


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())
