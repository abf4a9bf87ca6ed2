"""Tells which files of a folder make up a Marian model.

A configuration (`config.yml`, `decoder.yml`) names them; without one they are told by what they
are. Names lead nowhere but to the folder itself: of a path in a configuration the last part counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from export.readers.common.options import Options, read_options
from export.readers.marian import binary, shortlist
from export.readers.marian.nematus_settings import settings_path
from export.readers.marian.options import MOST_YAML_BYTES
from models.storage.files import read_text

VOCABULARIES = (".spm", ".yml", ".yaml", ".json", ".txt", ".vocab")


@dataclass(frozen=True)
class MarianFolder:
    """path: the folder. model, vocabularies (of source and target), shortlist: files in it."""

    path: Path
    model: Path | None
    vocabularies: tuple[Path, Path] | None
    shortlist: Path | None
    options: Options = field(repr=False)  # of the configuration

    @property
    def is_shared(self) -> bool:
        """Tell whether source and target have one vocabulary."""
        return self.vocabularies is not None and len({*self.vocabularies}) == 1


def looks_like(path: Path) -> bool:
    """Tell whether a path is a Marian model, or a folder that holds one."""
    try:
        return any(map(_is_model, path.iterdir() if path.is_dir() else [path]))
    except OSError:
        return False


def find_files(path: Path, problems: list[str]) -> MarianFolder:
    """`path` is the folder, or the model in it. What is missing is a problem."""
    folder = path.parent if path.is_file() else path
    options = _configuration(folder, problems)
    model = path if path.is_file() else _model(folder, options)
    vocabularies = _vocabularies(folder, options)
    found_shortlist = _shortlist(folder, options)
    return MarianFolder(folder, model, vocabularies, found_shortlist, options)


def _is_model(path: Path) -> bool:
    if not path.is_file():  # a pipe would never open
        return False
    return path.suffix == ".npz" or (path.suffix == ".bin" and binary.begins_like(path))


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


def _vocabularies(folder: Path, options: Options) -> tuple[Path, Path] | None:
    named = _named(folder, options, "vocabs")
    found = named or [path for path in _files(folder) if path.suffix == ".spm"]
    if 1 <= len(found) <= 2 and all(path.suffix in VOCABULARIES for path in found):
        source, target = found[0], found[-1]
        return (target, source) if target.name.startswith(("src", "source")) else (source, target)
    names = ", ".join(path.name for path in found) or "none"
    options.problems.append(f"one vocabulary (.spm) or two are wanted, found {names}")
    return None


def _shortlist(folder: Path, options: Options) -> Path | None:
    """Named first in the configuration's `shortlist`; else the one there is."""
    values = options.values.get("shortlist", [])
    if isinstance(values, list) and values and isinstance(values[0], str):
        return folder / Path(values[0]).name
    if values:
        options.refuse("shortlist", "must begin with the name of a file")
    found = [path for path in _files(folder) if shortlist.begins_like(path)]
    return found[0] if len(found) == 1 and not options.values else None


def _named(folder: Path, options: Options, name: str) -> list[Path]:
    paths = [folder / Path(each).name for each in options.words(name)]
    missing = [path.name for path in paths if not path.is_file()]
    options.problems += [f"{each} is missing, which {options.file} names" for each in missing]
    return [path for path in paths if path.is_file()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())
