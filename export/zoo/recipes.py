"""The zoo's recipes: found by name and checked, all of them, before anything starts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.data.corpus import read_documents, read_pairs
from models.training.config import ConfigError, TrainingConfig, read_config

READERS: dict[str, Callable[[Path], object]] = {
    "translate": read_pairs,
    "generate": read_documents,
}


@dataclass(frozen=True)
class Recipe:
    path: Path
    config: TrainingConfig

    @property
    def is_of_prose(self) -> bool:
        """Whether it is of a language model."""
        return self.config.model.task == "generate"

    @property
    def name(self) -> str:
        return self.config.name


def find_recipes(folder: Path, names: Sequence[str]) -> tuple[list[Recipe], list[str]]:
    """Find those that are named, all of the folder when none is; and what is wrong with them."""
    known = {path.stem: path for path in sorted(folder.glob("[!_]*.toml"))}
    if not known:
        return [], [f"{folder} holds no recipes (NAME.toml)"]
    problems = [f"{name} is none of {', '.join(known)}" for name in names if name not in known]
    recipes = []
    for path in (known[name] for name in names or known if name in known):
        try:
            recipes.append(_read(path))
        except ConfigError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
    return recipes, problems


def data_problems(recipes: Sequence[Recipe], data: Path) -> list[str]:
    """Tell what of all that the recipes read is not there or cannot be read."""
    if not data.is_dir():
        return [f"{data}: there is no such data folder; --data says where it is"]
    files = {
        name: READERS[recipe.config.model.task]
        for recipe in recipes
        for name in _files(recipe.config)
    }
    return [problem for name, read in files.items() for problem in _unreadable(data / name, read)]


def _read(path: Path) -> Recipe:
    config = read_config(path)
    problems = []
    if config.name != path.stem:
        problems.append(f"name: {config.name!r} is not the file's")
    if config.model.task not in READERS:
        problems.append(f"model: task {config.model.task} is not compared; the zoo's models write")
    if config.model.task == "translate" and not config.data.test:
        problems.append("data.test: there is nothing to evaluate on")
    if problems:
        raise ConfigError(path, problems)
    return Recipe(path, config)


def _files(config: TrainingConfig) -> list[str]:
    optional = (config.data.dev, config.data.test)
    return [*config.data.train, *(name for name in optional if name)]


def _unreadable(path: Path, read: Callable[[Path], object]) -> Iterator[str]:
    try:
        read(path)
    except FileNotFoundError as error:
        yield f"{error.filename}: there is no such file"
    except (OSError, ValueError) as error:
        yield str(error)
