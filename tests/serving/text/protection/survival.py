"""How often what must not change survives a translation:
`python -m tests.serving.text.protection.survival BUNDLE... [--lines FILE] [--json]`.

Each line is translated with protection and without. A line's units survive if all numbers,
addresses, placeholders, code, keys, emoji and signs of it occur in the answer as often as in it.
Without --lines the lines are a set of 1,000.
"""

import argparse
import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from serving.commands.common import engine_config, languages_of, translation_decoding
from serving.pipelines.offline import FILE_SLOTS, in_order, opened
from serving.pipelines.translation.job import TranslationJob
from tests.serving.text.protection.lines import thousand_lines
from tests.serving.text.protection.units import KINDS, kind_of, lost


@dataclass(frozen=True)
class Outcome:
    """A line, its translations with protection and without, and what each has lost."""

    line: str
    protected: str
    unprotected: str
    lost_protected: list[str]
    lost_unprotected: list[str]

    @property
    def is_worse(self) -> bool:
        """Say if protection lost something, and its absence nothing."""
        return bool(self.lost_protected) and not self.lost_unprotected


@dataclass(frozen=True)
class Report:
    """What survived of the lines with one model."""

    model: str
    outcomes: list[Outcome]

    @property
    def survived(self) -> tuple[int, int]:
        """Lines whose units survive with protection and without."""
        lost_both = [(each.lost_protected, each.lost_unprotected) for each in self.outcomes]
        return sum(not one for one, _ in lost_both), sum(not other for _, other in lost_both)

    def lines_that_lose(self, kind: str) -> tuple[int, int]:
        """Lines that lose units of a kind with protection and without."""
        kinds = [
            tuple(
                {*map(kind_of, losses)} for losses in (each.lost_protected, each.lost_unprotected)
            )
            for each in self.outcomes
        ]
        return sum(kind in one for one, _ in kinds), sum(kind in other for _, other in kinds)

    def summary(self) -> Iterator[str]:
        total = len(self.outcomes)
        with_it, without = self.survived
        worse = sum(each.is_worse for each in self.outcomes)
        yield (
            f"{self.model}: units survive in {with_it} of {total} lines ({with_it / total:.1%})"
            f" with protection, in {without} ({without / total:.1%}) without;"
            f" in {worse} lines only without"
        )
        digits = [total - num_lines for num_lines in self.lines_that_lose("digits")]
        yield f"  digits survive in {digits[0]} with protection, in {digits[1]} without"
        for kind in KINDS:
            one, other = self.lines_that_lose(kind)
            if one or other:
                yield f"  lines that lose {kind}: {one} with protection, {other} without"

    def failures(self) -> Iterator[str]:
        for each in self.outcomes:
            if each.lost_protected:
                yield f"- {each.line}"
                yield f"  with:    {each.protected}    lost: {'; '.join(each.lost_protected)}"
                losses = "; ".join(each.lost_unprotected) or "nothing, so protection is worse"
                yield f"  without: {each.unprotected}    lost: {losses}"


async def translated(bundle: Path, lines: Sequence[str], protections: Sequence[bool]) -> list[str]:
    """Translate each line, with its protection or not, all at once; an error is its answer."""
    async with opened(bundle, engine_config("cpu", slots=FILE_SLOTS)) as catalog:
        [card] = catalog.own_cards
        translator = await catalog.translator(card.name, "", "")
        languages = languages_of(card, None, None)
        job = TranslationJob("", (), *languages, translation_decoding(card, {}))

        async def work(numbered: tuple[int, tuple[str, bool]]) -> str:
            number, (line, protection) = numbered
            own = replace(job, request_id=str(number), texts=(line,), protection=protection)
            try:
                return (await translator.translate(own)).renderings[0][0].text
            except Exception as error:
                return f"[{type(error).__name__}: {error}]"

        work_items = enumerate(zip(lines, protections, strict=True))
        return [answer async for answer in in_order(work, work_items, len(lines))]


async def measured(bundle: Path, lines: Sequence[str]) -> Report:
    """Translate all lines with protection and without, and compare."""
    both = [True] * len(lines) + [False] * len(lines)
    answers = await translated(bundle, [*lines, *lines], both)
    outcomes = [
        Outcome(line, one, other, lost(line, one), lost(line, other))
        for line, one, other in zip(
            lines, answers[: len(lines)], answers[len(lines) :], strict=True
        )
    ]
    return Report(bundle.name, outcomes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--lines", type=Path, help="a file of lines")
    parser.add_argument("--json", action="store_true", help="write all outcomes as JSON")
    options = parser.parse_args()
    if options.lines:
        lines = [line for line in options.lines.read_text(encoding="utf-8").split("\n") if line]
    else:
        lines = thousand_lines()
    reports = [asyncio.run(measured(bundle, lines)) for bundle in options.bundles]
    if options.json:
        print(json.dumps([asdict(report) for report in reports], ensure_ascii=False, indent=1))
        return
    for report in reports:
        print(*report.failures(), *report.summary(), sep="\n", end="\n\n")
    print(*(next(report.summary()) for report in reports), sep="\n")


if __name__ == "__main__":
    main()
