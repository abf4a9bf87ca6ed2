"""Reports that compare models on translations, prose or labels, and the score of a bundle's marks.

A line of a test for tags is a source with HTML tags, and what each tag may hold in the translation,
``b=chien noir|chien brun;i=jardin``. A line of a test for protection is a source, and what its
translation must hold once each, ``500 mg|www.school.net``.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from export.scoring.scorers import prose_scorer, score_labels, translator
from models.checkpoint import load_checkpoint
from models.data.corpus import (
    ProseScore,
    SentencePair,
    read_documents,
    read_pairs,
    read_text,
    table,
)
from models.errors import InputError
from models.scores import LabelResult
from serving.bundle.opening import open_bundle
from serving.engine.config import EngineConfig
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import TranslationJob
from serving.text.markup.tokens import Markup, MarkupKind

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


class ScoreReport(Protocol):
    def as_json(self) -> dict[str, Any]: ...

    def as_markdown(self) -> str: ...


def score_models(models: Sequence[Path], question: Test) -> ScoreReport:
    """Return a report about the first model, compared with the others.

    Raises CheckpointError, BundleError, OSError, and InputError for what does not go together.
    """
    tasks = {task_of(model) for model in models}
    if len(tasks) > 1:
        raise InputError(
            "one of the models translates, writes, labels or embeds, and another does not"
        )
    return REPORTS[tasks.pop()](models, question)


def task_of(model: Path) -> str:
    if (model / "bundle.json").exists():
        return open_bundle(model).manifest.serves
    return load_checkpoint(model).config.task


@dataclass(frozen=True)
class TranslationReport:
    """By names of models; the first is what the report is about."""

    results: dict[str, "TestResult"]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.results.items()
        return first.as_json() | _against({name: report.as_json() for name, report in others})

    def as_markdown(self) -> str:
        (_, first), *others = self.results.items()
        return f"{first.as_table(dict(others))}\n\n{first.signatures}"


@dataclass(frozen=True)
class ProseReport:
    """By names of models; the first is what the report is about."""

    scores: dict[str, ProseScore]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.scores.items()
        return asdict(first) | _against({name: asdict(report) for name, report in others})

    def as_markdown(self) -> str:
        text = next(iter(self.scores.values())).as_sentence()
        return f"{table(self.scores)}\n\n{text}"


@dataclass(frozen=True)
class LabelReport:
    """By names of models; the first is what the report is about."""

    results: dict[str, LabelResult]

    def as_json(self) -> dict[str, Any]:
        (_, first), *others = self.results.items()
        return first.as_json() | _against({name: report.as_json() for name, report in others})

    def as_markdown(self) -> str:
        (_, first), *others = self.results.items()
        lines = [f"{name}: {report.accuracy:.1%}" for name, report in others]
        return "\n\n".join([first.as_markdown(), *lines])


def _against(others: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"against": others} if others else {}


def _score_translations(models: Sequence[Path], question: Test) -> TranslationReport:
    from models.scores import evaluate

    if question.recipe or not question.tests:
        raise InputError("a model that translates is scored on --test, sentences and references")
    pairs = _pairs(question.tests)
    how = question.num_beams, question.protects
    return TranslationReport({_name(m): evaluate(pairs, translator(m, *how)) for m in models})


def _score_prose(models: Sequence[Path], question: Test) -> ProseReport:
    if question.num_beams or question.protects:
        raise InputError(
            "a language model is asked how likely a text is: there is no --beam, no --protect"
        )
    documents = [document for path in question.tests for document in read_documents(path)]
    documents += held_out(question.recipe, question.data) if question.recipe else []
    if not documents:
        raise InputError(
            "there is no prose to score: --test or --held-out names it, in documents"
            " of 500 characters or more"
        )
    return ProseReport({_name(model): prose_scorer(model)(documents) for model in models})


def held_out(recipe: Path, data: Path) -> list[str]:
    """Return the documents that a recipe holds out of training. Raises InputError, OSError."""
    from models.training.config import TrainingConfigError, read_config
    from models.training.prepare import split_documents

    try:
        return split_documents(read_config(recipe), data)[1]
    except TrainingConfigError as error:
        raise InputError(str(error)) from None


def _pairs(paths: Sequence[Path]) -> list[SentencePair]:
    pairs = [pair for path in paths for pair in read_pairs(path)]
    if not pairs:
        raise InputError(f"--test {', '.join(map(str, paths))}: there is no line to score")
    return pairs


def _name(model: Path) -> str:
    return model.resolve().name


def _score_labels(models: Sequence[Path], question: Test) -> LabelReport:
    if question.recipe or question.num_beams or question.protects or not question.tests:
        raise InputError("a model that labels texts is scored on --test, origins and sentences")
    pairs = _pairs(question.tests)
    return LabelReport({_name(model): score_labels(model, pairs) for model in models})


def _score_nothing(models: Sequence[Path], question: Test) -> ScoreReport:
    raise InputError("models that embed texts, label tokens or fill masks have no score here")


REPORTS: dict[str, Callable[[Sequence[Path], Test], ScoreReport]] = {
    "translate": _score_translations,
    "generate": _score_prose,
    "classify": _score_labels,
    **dict.fromkeys(("embed", "classify-tokens", "fill-mask"), _score_nothing),
}


_TAG = re.compile(r"<[^<>]*>")
_SPACES = str.maketrans("\u00a0\u202f’", "  '")


class Marks(StrEnum):
    """What is counted in translations."""

    MARKUP = "markup"
    PROTECTION = "protection"


@dataclass(frozen=True, slots=True)
class MarkedScore:
    """How many marks are right.

    wrong: the translations in which one is not, after what it should be.
    """

    num_right: int
    num_marks: int
    wrong: tuple[tuple[str, str], ...]

    @property
    def share(self) -> float:
        return self.num_right / max(self.num_marks, 1)


def score_marks(folder: Path, test: Path, marks: Marks) -> MarkedScore:
    """Return how many marks of a test a bundle puts right. Raises BundleError, InputError for a
    line that is no pair, OSError.
    """
    pairs = [_pair(line) for line in read_text(test).splitlines()]
    job = TranslationJob("", tuple(source for source, _ in pairs), "", "")
    if marks is Marks.MARKUP:
        job, judge = replace(job, markup=Markup(MarkupKind.HTML)), _tags_that_hold
    else:
        job, judge = replace(job, protection=True), _spans_that_stand_once
    translations = asyncio.run(_translations(folder, job))
    right, wrong = [], []
    for (_, expected), text in zip(pairs, translations, strict=True):
        judgements = [*judge(text, expected)]
        right += judgements
        if not all(judgements):
            wrong.append((expected, text))
    return MarkedScore(sum(right), len(right), tuple(wrong))


async def _translations(folder: Path, job: TranslationJob) -> tuple[str, ...]:
    async with open_model(folder, EngineConfig(max_waiting=None)) as catalog:
        [card] = catalog.local_cards
        source = card.source_languages[0]
        target = card.targets_of(source)[0]
        model = await find_translator(catalog, card.name, source, target)
        return (await model.run(replace(job, source=source, target=target))).texts


def _pair(line: str) -> tuple[str, str]:
    source, tab, expected = line.partition("\t")
    if not tab:
        raise InputError(f"a line without a tab: {line!r}")
    return source, expected


def _tags_that_hold(text: str, expected: str) -> Iterator[bool]:
    for rule in expected.split(";"):
        tag, _, forms = rule.partition("=")
        match = re.search(rf"<{tag}\b[^<>]*>(.*?)</{tag}>", text)
        content = _TAG.sub("", match[1]) if match else ""
        yield content.lower().translate(_SPACES) in forms.split("|")


def _spans_that_stand_once(text: str, expected: str) -> Iterator[bool]:
    plain = text.translate(_SPACES)
    return (_occurrences(plain, span) == 1 for span in expected.split("|"))


def _occurrences(text: str, span: str) -> int:
    return len(re.findall(rf"(?<![\w.,]){re.escape(span)}(?!\w)", text))
