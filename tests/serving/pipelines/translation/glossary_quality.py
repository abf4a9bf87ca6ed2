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
        for term, translations in self.case.glossary.items():
            yield translations, _count(self.text, translations) >= _count(self.case.source, term)

    @property
    def is_misplaced(self) -> bool:
        """Return whether it begins with a term that the source does not begin with."""
        return any(
            term_pattern(translations).match(self.text)
            and not term_pattern(translations).match(self.plain)
            and term.lower() not in " ".join(self.case.source.lower().split()[:_FIRST_WORDS])
            for term, translations in self.case.glossary.items()
        )

    @property
    def is_doubled(self) -> bool:
        """Return whether a word stands twice in a row, or a term more often than its source."""
        if len(_doubled_words(self.text)) > len(_doubled_words(self.plain)):
            return True
        return any(
            _count(self.text, translations)
            > max(_count(self.case.source, term), _count(self.plain, translations))
            for term, translations in self.case.glossary.items()
        )


def _count(text: str, term: str) -> int:
    return len(term_pattern(term).findall(text))


def _doubled_words(text: str) -> list[str]:
    words = _WORD.findall(text.lower())
    return [word for word, following_word in pairwise(words) if word == following_word]


async def _translate_cases(
    translator: Translator, cases: Sequence[Case], beams: int | None
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

    return list(await asyncio.gather(*(both(*numbered_case) for numbered_case in enumerate(cases))))


def _report(kind: str, results: Sequence[Translated]) -> str:
    terms = [is_there for result in results for _, is_there in result.terms]
    plain, texts = [result.plain for result in results], [result.text for result in results]
    references = [result.case.plain or result.plain for result in results]
    expected = [result.case.expected or result.plain for result in results]
    parts = [
        f"{kind}: {len(results)} sentences, terms present {sum(terms)} of {len(terms)}",
        f"begin misplaced {sum(result.is_misplaced for result in results)}",
        f"doubled {sum(result.is_doubled for result in results)}",
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
        results = await _translate_cases(translator, make(data, count), beams)
    for kind in Counter(result.case.kind for result in results):
        print(_report(kind, [result for result in results if result.case.kind == kind]))
    print(_report("all", results))
    for result in results if shows else ():
        flags = ["misplaced"] * result.is_misplaced + ["doubled"] * result.is_doubled
        flags += [
            f"missing {translations}" for translations, is_there in result.terms if not is_there
        ]
        print(f"\n{result.case.source}\n{dict(result.case.glossary)} {' '.join(flags)}")
        print(f"  {result.plain}\n  {result.text}\n  {result.case.expected}")


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
