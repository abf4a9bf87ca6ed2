"""Counts what a bundle's translations do with marks: tags at the right words, and what must not
change.

Lines of a test for tags are a source with HTML tags and what each may hold,
``b=chien noir|chien brun;i=jardin``; of a test for protection a source and what its translation
must hold once each, as ``500 mg|www.school.net``.
"""

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from serving.engine.config import EngineConfig
from serving.pipelines.loading import opened
from serving.pipelines.translation.job import TranslationJob
from serving.text.markup.tokens import Markup, MarkupKind

_TAG = re.compile(r"<[^<>]*>")
_SPACES = str.maketrans("\u00a0\u202f’", "  '")


class Marks(StrEnum):
    """Names what is counted."""

    MARKUP = "markup"
    PROTECTION = "protection"


@dataclass(frozen=True, slots=True)
class MarkedScore:
    """Describes how many marks are right.

    wrong: the translations in which one is not, after what it should be.
    """

    num_right: int
    num_marks: int
    wrong: tuple[tuple[str, str], ...]

    @property
    def share(self) -> float:
        return self.num_right / max(self.num_marks, 1)


def score_marks(folder: Path, test: Path, marks: Marks) -> MarkedScore:
    """Return how many marks of a test a bundle puts right. Raises BundleError, ValueError for a
    line that is no pair, OSError.
    """
    pairs = [_pair(line) for line in test.read_text("utf-8").splitlines()]
    job = TranslationJob("", tuple(source for source, _ in pairs), "", "")
    if marks is Marks.MARKUP:
        job, judge = replace(job, markup=Markup(MarkupKind.HTML)), _tags_that_hold
    else:
        job, judge = replace(job, protection=True), _spans_that_stand_once
    translations = asyncio.run(_translations(folder, job))
    right, wrong = [], []
    for (_, expected), text in zip(pairs, translations, strict=True):
        found = [*judge(text, expected)]
        right += found
        if not all(found):
            wrong.append((expected, text))
    return MarkedScore(sum(right), len(right), tuple(wrong))


async def _translations(folder: Path, job: TranslationJob) -> tuple[str, ...]:
    async with opened(folder, EngineConfig(max_waiting=None)) as catalog:
        [card] = catalog.own_cards
        source = card.source_languages[0]
        target = card.targets_of(source)[0]
        model = await catalog.translator(card.name, source, target)
        return (await model.run(replace(job, source=source, target=target))).texts


def _pair(line: str) -> tuple[str, str]:
    source, tab, expected = line.partition("\t")
    if not tab:
        raise ValueError(f"a line without a tab: {line!r}")
    return source, expected


def _tags_that_hold(text: str, expected: str) -> Iterator[bool]:
    for each in expected.split(";"):
        tag, _, forms = each.partition("=")
        found = re.search(rf"<{tag}\b[^<>]*>(.*?)</{tag}>", text)
        held = _TAG.sub("", found[1]) if found else ""
        yield held.lower().translate(_SPACES) in forms.split("|")


def _spans_that_stand_once(text: str, expected: str) -> Iterator[bool]:
    plain = text.translate(_SPACES)
    return (_occurrences(plain, span) == 1 for span in expected.split("|"))


def _occurrences(text: str, span: str) -> int:
    return len(re.findall(rf"(?<![\w.,]){re.escape(span)}(?!\w)", text))
