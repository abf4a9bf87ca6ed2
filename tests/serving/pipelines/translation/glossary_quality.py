"""Measures what glossaries do to translations.

    python -m tests.serving.pipelines.translation.glossary_quality BUNDLE --data DATA/en-fr

For a model into French half of the cases are terms that the reference uses and half are made up,
and scores are against the references. For one into Portuguese all are made up, and scores are
against what it translates without the glossary.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import click
from sacrebleu.metrics import BLEU, CHRF

from serving.engine.config import EngineConfig
from serving.pipelines.catalog import Translator
from serving.pipelines.decoding import Decoding
from serving.pipelines.loading import open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.translation.job import GlossaryEntry, TranslationJob
from serving.requests.parameters import BeamParams
from serving.text.terms import term_pattern
from tests.serving.pipelines.translation.glossary_cases import Case, cases, portuguese_cases

_WORD = re.compile(r"\w+")
_FIRST_WORDS = 3  # an article, an adjective and the term


@dataclass(frozen=True)
class Translated:
    """A case and its translations, without the glossary and with it."""

    case: Case
    plain: str
    text: str

    @property
    def terms(self) -> Iterator[tuple[str, bool]]:
        """Yield each translation of a term, and whether it is there as often as its source."""
        for term, wanted in self.case.glossary.items():
            yield wanted, _count(self.text, wanted) >= _count(self.case.source, term)

    @property
    def is_misplaced(self) -> bool:
        """Return whether it begins with a term that the source does not begin with."""
        return any(
            term_pattern(wanted).match(self.text)
            and not term_pattern(wanted).match(self.plain)
            and term.lower() not in " ".join(self.case.source.lower().split()[:_FIRST_WORDS])
            for term, wanted in self.case.glossary.items()
        )

    @property
    def is_doubled(self) -> bool:
        """Return whether a word stands twice in a row, or a term more often than its source."""
        if len(_doubled(self.text)) > len(_doubled(self.plain)):
            return True
        return any(
            _count(self.text, wanted)
            > max(_count(self.case.source, term), _count(self.plain, wanted))
            for term, wanted in self.case.glossary.items()
        )


def _count(text: str, term: str) -> int:
    return len(term_pattern(term).findall(text))


def _doubled(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return [left for left, right in pairwise(words) if left == right]


async def _translated(
    translator: Translator, found: Sequence[Case], beams: int | None
) -> list[Translated]:
    card = translator.card
    [source], [target] = card.source_languages, card.target_languages
    decoding = Decoding(beam=BeamParams(beams) if beams else None)

    async def text_of(number: int, case: Case, glossary: Mapping[str, str]) -> str:
        name, texts = f"{number}-{len(glossary)}", (case.source,)
        entries = tuple(GlossaryEntry(term, (text,)) for term, text in glossary.items())
        job = TranslationJob(
            name, texts, source, target, decoding, glossary=entries, protection=True
        )
        return (await translator.run(job)).texts[0]

    async def both(number: int, case: Case) -> Translated:
        plain, text = await asyncio.gather(
            text_of(number, case, {}), text_of(number, case, case.glossary)
        )
        return Translated(case, plain, text)

    return list(await asyncio.gather(*(both(*each) for each in enumerate(found))))


def _report(kind: str, found: Sequence[Translated]) -> str:
    terms = [is_there for each in found for _, is_there in each.terms]
    plain, texts = [each.plain for each in found], [each.text for each in found]
    references = [each.case.plain or each.plain for each in found]
    expected = [each.case.expected or each.plain for each in found]
    parts = [
        f"{kind}: {len(found)} sentences, terms present {sum(terms)} of {len(terms)}",
        f"begin misplaced {sum(each.is_misplaced for each in found)}",
        f"doubled {sum(each.is_doubled for each in found)}",
        f"BLEU {_score(BLEU(), plain, references)} -> {_score(BLEU(), texts, expected)}",
        f"chrF {_score(CHRF(), plain, references)} -> {_score(CHRF(), texts, expected)}",
    ]
    return ", ".join(parts)


def _score(metric: BLEU | CHRF, texts: list[str], references: list[str]) -> str:
    return f"{metric.corpus_score(texts, [references]).score:.1f}"


async def _measure(bundle: Path, data: Path, count: int, beams: int | None, shows: bool) -> None:
    async with open_model(bundle, EngineConfig(slots=128, max_waiting=None)) as catalog:
        [card] = catalog.local_cards
        translator = await find_translator(catalog, card.name, "", "")
        make = cases if card.target_languages == ("fr",) else portuguese_cases
        found = await _translated(translator, make(data, count), beams)
    for kind in Counter(each.case.kind for each in found):
        print(_report(kind, [each for each in found if each.case.kind == kind]))
    print(_report("all", found))
    for each in found if shows else ():
        flags = ["misplaced"] * each.is_misplaced + ["doubled"] * each.is_doubled
        flags += [f"missing {wanted}" for wanted, is_there in each.terms if not is_there]
        print(f"\n{each.case.source}\n{dict(each.case.glossary)} {' '.join(flags)}")
        print(f"  {each.plain}\n  {each.text}\n  {each.case.expected}")


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Of English and French."
)
@click.option("--count", default=200, help="Sentences.")
@click.option("--beam", type=int, help="Beams; else greedy.")
@click.option("--show", is_flag=True, help="Write all translations.")
def main(bundle: Path, data: Path, count: int, beam: int | None, show: bool) -> None:
    asyncio.run(_measure(bundle, data, count, beam, show))


if __name__ == "__main__":
    main()
