"""Asks models for translations, prose or labels, and puts their answers side by side."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from export.scoring.scorers import prose_scorer, score_labels, translator
from models.checkpoint import load_checkpoint
from models.data.corpus import Pair, ProseScore, read_documents, read_pairs, table
from models.scores import LabelResult
from serving.bundle.opening import open_bundle

if TYPE_CHECKING:
    from models.scores import TestResult


@dataclass(frozen=True)
class Test:
    """tests: files. recipe: whose held-out prose is asked for, its paths relative to `data`.

    protects: as in `translator`.
    """

    tests: Sequence[Path]
    recipe: Path | None
    data: Path
    num_beams: int | None = None
    protects: bool = False


class Report(Protocol):
    def as_json(self) -> dict[str, Any]: ...

    def as_markdown(self) -> str: ...


def score_models(models: Sequence[Path], question: Test) -> Report:
    """Score models, the first of which the report is about.

    Raises CheckpointError, BundleError, OSError, and ValueError for what does not go together.
    """
    tasks = {task_of(model) for model in models}
    if len(tasks) > 1:
        raise ValueError(
            "one of the models translates, writes, labels or embeds, and another does not"
        )
    return REPORTS[tasks.pop()](models, question)


def task_of(model: Path) -> str:
    if (model / "bundle.json").exists():
        return open_bundle(model).manifest.task
    return load_checkpoint(model).config.task


@dataclass(frozen=True)
class TranslationReport:
    """By names of models; the first is what the report is about."""

    results: dict[str, "TestResult"]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.results.items()
        return first.as_json() | _against({name: each.as_json() for name, each in others})

    def as_markdown(self) -> str:
        (_, first), *others = self.results.items()
        return f"{first.as_table(dict(others))}\n\n{first.signatures}"


@dataclass(frozen=True)
class ProseReport:
    """By names of models; the first is what the report is about."""

    scores: dict[str, ProseScore]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.scores.items()
        return asdict(first) | _against({name: asdict(each) for name, each in others})

    def as_markdown(self) -> str:
        text = next(iter(self.scores.values())).as_sentence()
        return f"{table(self.scores)}\n\n{text}"


@dataclass(frozen=True)
class LabelReport:
    """By names of models; the first is what the report is about."""

    results: dict[str, LabelResult]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.results.items()
        return first.as_json() | _against({name: each.as_json() for name, each in others})

    def as_markdown(self) -> str:
        (_, first), *others = self.results.items()
        lines = [f"{name}: {each.accuracy:.1%}" for name, each in others]
        return "\n\n".join([first.as_markdown(), *lines])


def _against(others: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"against": others} if others else {}


def _score_translations(models: Sequence[Path], question: Test) -> TranslationReport:
    from models.scores import evaluate

    if question.recipe or not question.tests:
        raise ValueError("a model that translates is scored on --test, sentences and references")
    pairs = _pairs(question.tests)
    how = question.num_beams, question.protects
    return TranslationReport({_name(m): evaluate(pairs, translator(m, *how)) for m in models})


def _score_prose(models: Sequence[Path], question: Test) -> ProseReport:
    if question.num_beams or question.protects:
        raise ValueError(
            "a language model is asked how likely a text is: there is no --beam, no --protect"
        )
    documents = [each for path in question.tests for each in read_documents(path)]
    documents += held_out(question.recipe, question.data) if question.recipe else []
    if not documents:
        raise ValueError(
            "there is no prose to score: --test or --held-out names it, in documents"
            " of 500 characters or more"
        )
    return ProseReport({_name(model): prose_scorer(model)(documents) for model in models})


def held_out(recipe: Path, data: Path) -> list[str]:
    """The documents that a recipe holds out of training. Raises ValueError, OSError."""
    from models.training.config import ConfigError, read_config
    from models.training.prepare import split_documents

    try:
        return split_documents(read_config(recipe), data)[1]
    except ConfigError as error:
        raise ValueError(str(error)) from None


def _pairs(paths: Sequence[Path]) -> list[Pair]:
    pairs = [pair for path in paths for pair in read_pairs(path)]
    if not pairs:
        raise ValueError(f"--test {', '.join(map(str, paths))}: there is no line to score")
    return pairs


def _name(model: Path) -> str:
    return model.resolve().name


def _score_labels(models: Sequence[Path], question: Test) -> LabelReport:
    if question.recipe or question.num_beams or question.protects or not question.tests:
        raise ValueError("a model that labels texts is scored on --test, origins and sentences")
    pairs = _pairs(question.tests)
    return LabelReport({_name(model): score_labels(model, pairs) for model in models})


def _score_nothing(models: Sequence[Path], question: Test) -> Report:
    raise ValueError("a model that embeds texts has no score by itself")


REPORTS: dict[str, Callable[[Sequence[Path], Test], Report]] = {
    "translate": _score_translations,
    "generate": _score_prose,
    "classify": _score_labels,
    "embed": _score_nothing,
}
