"""Measures how often numbers, addresses, placeholders, code, keys, emoji and signs of a line are in
its translation as often as in the line, with protection and without.

    python -m tests.serving.text.protection.survival BUNDLE... [--lines FILE | --placeholders]

Without --lines the lines are a set of 1,000; with --placeholders 300 with the placeholders of all
frameworks, each of which must come back whole, once, and apart from words.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from serving.commands.options import engine_config, languages_of, translation_decoding
from serving.pipelines.loading import FILE_SLOTS, open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import TranslationJob
from tests.serving.text.protection.lines import lines_of, placeholder_lines, thousand_lines
from tests.serving.text.protection.units import KINDS, kind_of, lost, lost_placeholders


@dataclass(frozen=True)
class Outcome:
    """A line's translation, and what it has lost."""

    line: str
    answer: str
    losses: list[str]

    @property
    def kinds(self) -> set[str]:
        return {kind_of(loss) for loss in self.losses}


@dataclass(frozen=True)
class Report:
    """The outcomes of the same lines with one model, with protection and without."""

    model: str
    protected: list[Outcome]
    unprotected: list[Outcome]

    def summary(self) -> Iterator[str]:
        pairs = [*zip(self.protected, self.unprotected, strict=True)]
        both = (self.protected, self.unprotected)
        survived = [sum(not outcome.losses for outcome in outcomes) for outcomes in both]
        worse = sum(bool(one.losses and not other.losses) for one, other in pairs)
        yield (
            f"{self.model}: of {len(pairs)} lines all units survive in {survived[0]} with"
            f" protection, in {survived[1]} without, in {worse} only without"
        )
        for kind in KINDS:
            one, other = (sum(kind in outcome.kinds for outcome in outcomes) for outcomes in both)
            if one or other:
                yield f"  lines that lose {kind}: {one} with protection, {other} without"

    def failures(self) -> Iterator[str]:
        for one, other in zip(self.protected, self.unprotected, strict=True):
            if one.losses:
                yield f"- {one.line}"
                yield f"  with:    {one.answer}    lost: {'; '.join(one.losses)}"
                yield f"  without: {other.answer}    lost: {'; '.join(other.losses) or 'nothing'}"


async def translate_lines(bundle: Path, lines: Sequence[str], protection: bool) -> list[str]:
    """Translate each line; the answer of one that fails is its error."""
    async with open_model(bundle, engine_config("cpu", slots=FILE_SLOTS)) as catalog:
        [card] = catalog.local_cards
        translator = await find_translator(catalog, card.name, "", "")
        languages = languages_of(card, None, None)
        decoding = translation_decoding(card, {})

        async def work(numbered: tuple[int, str]) -> str:
            number, line = numbered
            job = TranslationJob(str(number), (line,), *languages, decoding, protection=protection)
            try:
                return (await translator.run(job)).renderings[0][0].text
            except Exception as error:
                return f"[{type(error).__name__}: {error}]"

        return [answer async for answer in in_order(work, enumerate(lines), len(lines))]


Losses = Callable[[str, str], list[str]]


async def measure(bundle: Path, lines: Sequence[str], lost: Losses = lost) -> Report:
    """Translate all lines with protection and without."""
    reports = []
    for protection in (True, False):
        answers = await translate_lines(bundle, lines, protection)
        pairs = zip(lines, answers, strict=True)
        reports.append([Outcome(line, answer, lost(line, answer)) for line, answer in pairs])
    return Report(bundle.name, *reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--lines", type=Path, help="a file of lines")
    parser.add_argument("--placeholders", action="store_true", help="the set of placeholders")
    options = parser.parse_args()
    lines = lines_of(options.lines) if options.lines else thousand_lines()
    losses: Losses = lost
    if options.placeholders:
        units = placeholder_lines()
        lines, losses = [*units], lambda line, answer: lost_placeholders(units[line], line, answer)
    for bundle in options.bundles:
        report = asyncio.run(measure(bundle, lines, losses))
        print(*report.failures(), *report.summary(), sep="\n", end="\n\n")


if __name__ == "__main__":
    main()
