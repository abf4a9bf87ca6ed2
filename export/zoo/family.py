"""One recipe of the zoo: its run, bundles and results, and the commands run for it.

The folder holds `run/` (what `attendant train` writes), a bundle for each precision, and a lock.
"""

import fcntl
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from export.scoring.reports import held_out
from export.zoo.results import (
    OutOfTime,
    Results,
    StateBytes,
    TrainingResults,
    Validation,
    ZooError,
    read_results,
)
from models.architectures.registry import AnyConfig
from models.checkpoint import WEIGHTS_FILE, load_checkpoint
from models.configs.base import EncoderConfig, LanguageModelConfig
from models.data.corpus import SentencePair, read_documents, read_pairs
from models.errors import InputError
from models.training.config import TrainingConfig, TrainingConfigError, read_config
from serving.bundle.manifest import MANIFEST_FILE, Precision
from serving.bundle.opening import open_bundle
from serving.engine.states.store import row_bytes

SHOWN_LINES = 12
STOPPED = (-signal.SIGTERM, 128 + signal.SIGTERM)


def attendant(
    *words: object,
    lock_file: IO[Any] | None = None,
    shows: bool = False,
    seconds: float | None = None,
) -> str:
    """Return what `attendant WORDS...` writes to standard output. `shows` lets its progress
    through.

    `held` stays open as long as the process lives, should this one die before it. After `seconds`
    it is stopped as by SIGTERM. Raises ZooError, and OutOfTime where that was early.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "serving.cli", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.PIPE,
        text=True,
        pass_fds=[lock_file.fileno()] if lock_file else [],
    ) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, errors = process.communicate()
            if process.returncode in STOPPED:
                raise OutOfTime from None
        except BaseException:  # what it writes stays whole only if it may end by itself
            process.terminate()
            raise
    if process.returncode:
        said = (errors or out).strip().splitlines()[-SHOWN_LINES:]
        raise ZooError([f"attendant {words[0]} ended with status {process.returncode}", *said])
    return out


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
    """Return the named recipes, or all of the folder if none is named, and the problems with
    them.
    """
    recipe_paths = {path.stem: path for path in sorted(folder.glob("[!_]*.toml"))}
    if not recipe_paths:
        return [], [f"{folder} holds no recipes (NAME.toml)"]
    problems = [
        f"{name} is none of {', '.join(recipe_paths)}" for name in names if name not in recipe_paths
    ]
    recipes = []
    for path in (recipe_paths[name] for name in names or recipe_paths if name in recipe_paths):
        try:
            recipes.append(_read(path))
        except TrainingConfigError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
    return recipes, problems


def data_problems(recipes: Sequence[Recipe], data: Path) -> list[str]:
    """Return which data of the recipes is missing or cannot be read."""
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
        raise TrainingConfigError(path, problems)
    return Recipe(path, config)


def _files(config: TrainingConfig) -> list[str]:
    optional = (config.data.dev, config.data.test)
    return [*config.data.train, *(name for name in optional if name)]


def _unreadable(path: Path, read: Callable[[Path], object]) -> Iterator[str]:
    try:
        read(path)
    except FileNotFoundError as error:
        yield f"{error.filename}: there is no such file"
    except (OSError, InputError) as error:
        yield str(error)


@dataclass(frozen=True)
class Settings:
    """Settings of all families.

    again: repeat everything except training.
    until: when training is stopped, by `time.monotonic`.
    """

    data: Path
    output: Path
    results: Path
    threads: int | None = None
    again: bool = False
    until: float | None = None


class Family:
    def __init__(self, recipe: Recipe, settings: Settings) -> None:
        self.name, self.recipe, self.settings = recipe.name, recipe, settings
        self.folder = settings.output / recipe.name
        self.run = TrainingRun(self.folder / "run")
        self._results_path = settings.results / f"{recipe.name}.json"
        self._lock: IO[Any] | None = None
        self._exported: set[Precision] = set()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """For this process alone and those that it starts, which may live on when it is killed.

        Raises ZooError, also where the recipe is not what the run was trained by.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as self._lock:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ZooError([f"{self.folder} is in use by another process"]) from None
            self.run.check(self.recipe)
            yield

    def attendant(self, *words: object) -> str:
        """See `commands.attendant`."""
        assert self._lock is not None, "the family is locked before anything is done"
        return attendant(*words, lock_file=self._lock)

    def train(self) -> None:
        """Train from where training was stopped. Raises ZooError and OutOfTime."""
        assert self._lock is not None, "the family is locked before anything is done"
        words = ["train", self.recipe.path, "--data", self.settings.data, "-o", self.run.folder]
        attendant(
            *words,
            *self.thread_options,
            lock_file=self._lock,
            shows=True,
            seconds=self._seconds_left(),
        )

    def _seconds_left(self) -> float | None:
        if self.settings.until is None:
            return None
        seconds_left = self.settings.until - time.monotonic()
        if seconds_left <= 0:
            raise OutOfTime
        return seconds_left

    @property
    def saved_results(self) -> Results | None:
        """The results file, if it is about the checkpoint that is there."""
        if not self.run.is_finished:
            return None
        results = read_results(self._results_path)
        return results if results and results.checkpoint == self.run.digest else None

    def save(self, **sections: Any) -> None:
        """Put sections into the results file; those of another checkpoint are dropped."""
        new = self.run.results(self.recipe)
        results = self.saved_results or new
        sections |= {"title": new.title, "training": new.training}
        results.model_copy(update=sections).save(self._results_path)

    @cached_property
    def test(self) -> list[SentencePair]:
        return read_pairs(self.settings.data / str(self.recipe.config.data.test))

    @cached_property
    def held_out(self) -> list[str]:
        """The held-out documents that a language model is scored on."""
        return held_out(self.recipe.path, self.settings.data)

    @property
    def thread_options(self) -> list[object]:
        return ["--threads", self.settings.threads] if self.settings.threads else []

    def bundle(self, precision: Precision) -> Path:
        """Return the checkpoint's, exported where it is not yet. Raises ZooError."""
        folder = self.folder / precision.value
        if precision not in self._exported and (self.settings.again or not self._is_new(folder)):
            options = ["--precision", precision.value, "--name", self.name]
            self.attendant("export", self.run.checkpoint, "-o", folder, *options)
        self._exported.add(precision)
        return folder

    def _is_new(self, bundle: Path) -> bool:
        manifest, card = bundle / MANIFEST_FILE, self.run.checkpoint / "README.md"
        return manifest.is_file() and manifest.stat().st_mtime >= card.stat().st_mtime


def about_bundle(folder: Path) -> StateBytes:
    """Read what a bundle says of its states."""
    manifest = open_bundle(folder).manifest
    size = row_bytes(manifest.states)
    return StateBytes(
        has_attention=manifest.num_attention_heads > 0,
        fixed_bytes=size.fixed,
        bytes_per_source_token=size.per_source_token,
        bytes_per_target_token=size.per_target_token,
    )


@dataclass(frozen=True)
class TrainingRun:
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def is_finished(self) -> bool:
        """Whether training is done: it writes the checkpoint's card last."""
        return (self.checkpoint / "README.md").is_file()

    @property
    def digest(self) -> str:
        """SHA-256 of the trained weights."""
        return hashlib.sha256((self.checkpoint / WEIGHTS_FILE).read_bytes()).hexdigest()

    def check(self, recipe: Recipe) -> None:
        """Raises ZooError where the recipe has changed since."""
        if self.is_finished and load_checkpoint(self.checkpoint).config != recipe.config.model:
            changed = f"{self.folder} was trained with another [model] than {recipe.path} has"
            raise ZooError([f"{changed}; remove it to train anew"])

    def results(self, recipe: Recipe) -> Results:
        """Return what is known after training."""
        checkpoint = load_checkpoint(self.checkpoint)
        config = checkpoint.config
        return Results(
            name=recipe.name,
            title=recipe.config.card.title or recipe.name,
            architecture=config.architecture,
            languages=_language_pair(config),
            parameters=sum(weight.size for weight in checkpoint.weights.values()),
            checkpoint=self.digest,
            training=self._training(recipe),
        )

    def _training(self, recipe: Recipe) -> TrainingResults:
        run = recipe.config.run
        lines = (self.folder / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        last = rows[-1]
        return TrainingResults(
            command=f"attendant train {recipe.path}",
            clock=run.clock,
            max_minutes=run.max_minutes,
            minutes=last["minutes"],
            tokens_per_batch=run.tokens_per_batch,
            steps=last["step"],
            epochs=round(self._epochs(), 1),
            dev_loss=last["dev_loss"],
            seed=run.seed,
            curve=tuple(
                Validation(minutes=row["minutes"], dev_loss=row["dev_loss"], dev_bleu=row["bleu"])
                for row in rows
            ),
        )

    def _epochs(self) -> float:
        """Over the training data, the last one in part."""
        progress = json.loads((self.folder / "state" / "progress.json").read_text())
        num_batches = progress.get("num_batches")  # runs from before it was kept: whole epochs
        return progress["epoch"] + (progress["batch"] / num_batches if num_batches else 0.0)


def _language_pair(config: AnyConfig) -> str:
    assert not isinstance(config, EncoderConfig), "recipes are read as those of models that write"
    if isinstance(config, LanguageModelConfig):
        return "+".join(config.languages)
    return f"{'+'.join(config.source_languages)}-{'+'.join(config.target_languages)}"
