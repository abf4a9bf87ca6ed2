"""Measures translations of sentences that are longer than those that models are trained on.

    python -m tests.serving.pipelines.translation.long_sentences BUNDLE... --data DATA/en-fr

Each of the sentences, of 80 to 400 words, is made of pairs of the test set, joined by commas,
semicolons and conjunctions, as its reference is. For a model into another language than French the
reference is what it makes of the parts alone, joined in the same way.
"""

import asyncio
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
from sacrebleu.metrics import CHRF

from models.data.corpus import read_pairs
from serving.commands.options import engine_config, translation_decoding
from serving.pipelines.catalog import Translator
from serving.pipelines.loading import FILE_SLOTS, open_model
from serving.pipelines.routing import find_translator
from serving.pipelines.streams import in_order
from serving.pipelines.translation.job import Rendering, TranslationJob
from serving.requests.request import FinishReason
from serving.text.abbreviations import word_set

SHORTEST, LONGEST = 80, 400  # words
_JOINS = {
    "fr": {", ": ", ", "; ": " ; ", " and ": " et "},
    "pt": {", ": ", ", "; ": "; ", " and ": " e "},
}
_INNER_END = re.compile(r"[.!?:;…]")
_BEGINNINGS = word_set(
    "a an the this that these those there it its he she they we you people someone some two three"
    " four many several in on at his her their our your my"
)
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class LongSentence:
    """The parts of a sentence, with their translations, and the joins between them."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    joins: tuple[str, ...]

    @property
    def source(self) -> str:
        return _join(self.sources, self.joins, "") + "."

    def reference(self, language: str) -> str:
        return _join(self.targets, self.joins, language) + "."


def _join(parts: Sequence[str], joins: Sequence[str], language: str) -> str:
    table = _JOINS.get(language, {})
    spaced = (table.get(join, join) + part for join, part in zip(joins, parts[1:], strict=True))
    return parts[0] + "".join(spaced)


def long_sentences(data: Path, count: int, seed: int = 1) -> list[LongSentence]:
    """Return sentences of `SHORTEST` to `LONGEST` words, each about as many words longer than the
    one before.
    """
    draw = random.Random(seed)
    pairs = [*_parts(data)]
    draw.shuffle(pairs)
    sentences = []
    for number in range(count):
        num_words = SHORTEST + (LONGEST - SHORTEST) * number // max(count - 1, 1)
        parts: list[tuple[str, str]] = []
        while sum(len(source.split()) for source, _ in parts) < num_words:
            parts.append(pairs[draw.randrange(len(pairs))])
        joins = tuple(draw.choice((", ", "; ", " and ")) for _ in parts[1:])
        sources, targets = zip(*parts, strict=True)
        sentences.append(LongSentence(sources, targets, joins))
    return sentences


def _parts(data: Path) -> Iterator[tuple[str, str]]:
    for pair in read_pairs(data / "test.tsv.gz"):
        source, target = pair.source.rstrip(" .!?"), pair.target.rstrip(" .!?")
        has_words = 4 <= len(source.split()) <= 30
        if has_words and not _INNER_END.search(source + target):
            if source.split()[0].lower() in _BEGINNINGS:
                source, target = _in_small(source), _in_small(target)
            yield source, target


def _in_small(text: str) -> str:
    return text[:1].lower() + text[1:]


def most_repeats(text: str) -> int:
    """Return how often the four words in a row come that come most."""
    words = _WORD.findall(text.lower())
    grams = Counter(zip(*(words[start:] for start in range(4)), strict=False))
    return max(grams.values(), default=0)


async def translate(translator: Translator, texts: Sequence[str]) -> list[Rendering]:
    card = translator.card
    decoding = translation_decoding(card, {})
    [source], [target] = card.source_languages, card.target_languages

    async def work(numbered: tuple[int, str]) -> Rendering:
        number, text = numbered
        job = TranslationJob(str(number), (text,), source, target, decoding, protection=True)
        return (await translator.run(job)).renderings[0][0]

    return [rendering async for rendering in in_order(work, enumerate(texts), 32)]


def _report(name: str, outcomes: Sequence[Rendering], references: Sequence[str]) -> str:
    texts = [outcome.text for outcome in outcomes]
    third = -(-len(texts) // 3)
    scores = [
        CHRF().corpus_score(texts[start : start + size], [references[start : start + size]]).score
        for start, size in ((0, len(texts)), *((start, third) for start in (0, third, 2 * third)))
    ]
    pairs = [*zip(texts, references, strict=True)]
    num_loops = sum(most_repeats(text) >= max(4, 2 * most_repeats(ref)) for text, ref in pairs)
    num_cut = sum(outcome.reason is FinishReason.LENGTH for outcome in outcomes)
    length = sum(map(len, texts)) / sum(map(len, references))
    thirds = " ".join(f"{score:.1f}" for score in scores[1:])
    return (
        f"{name}: chrF {scores[0]:.1f} (by thirds, shortest first: {thirds}), {num_loops} loops,"
        f" {num_cut} ended by length, {length:.2f} of the references' length"
    )


async def _measure(bundle: Path, sentences: Sequence[LongSentence], shows: bool) -> None:
    async with open_model(bundle, engine_config("cpu", slots=FILE_SLOTS)) as catalog:
        [card] = catalog.local_cards
        translator = await find_translator(catalog, card.name, "", "")
        [target] = card.target_languages
        if target != "fr":
            parts = [*dict.fromkeys(part for sentence in sentences for part in sentence.sources)]
            alone = await translate(translator, parts)
            by_source = {
                part: outcome.text.rstrip(" .!?")
                for part, outcome in zip(parts, alone, strict=True)
            }
            sentences = [
                replace(sentence, targets=tuple(by_source[part] for part in sentence.sources))
                for sentence in sentences
            ]
        outcomes = await translate(translator, [sentence.source for sentence in sentences])
    references = [sentence.reference(target) for sentence in sentences]
    for sentence, outcome, reference in zip(sentences, outcomes, references, strict=True):
        if shows:
            print(f"\n{sentence.source}\n  {outcome.text}\n  {reference}")
    print(_report(card.name, outcomes, references), flush=True)


def _with_split_tokens(bundle: Path, split_tokens: int | None, folder: Path) -> Path:
    """Return the bundle, or a copy of it that is split so."""
    if split_tokens is None:
        return bundle
    copy = folder / bundle.name
    copy.mkdir()
    for path in bundle.iterdir():
        (copy / path.name).hardlink_to(path)
    manifest = json.loads((bundle / "bundle.json").read_text())
    manifest["limits"]["split_tokens"] = split_tokens
    (copy / "bundle.json").unlink()
    (copy / "bundle.json").write_text(json.dumps(manifest))
    return copy


@click.command()
@click.argument("bundles", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Of English and French."
)
@click.option("--count", default=200, help="Sentences.")
@click.option("--split-tokens", type=int, help="In place of what the bundle says.")
@click.option("--show", is_flag=True, help="Write all translations.")
def main(
    bundles: tuple[Path, ...], data: Path, count: int, split_tokens: int | None, show: bool
) -> None:
    sentences = long_sentences(data, count)
    for bundle in bundles:
        with tempfile.TemporaryDirectory(dir=bundle.parent) as folder:
            changed = _with_split_tokens(bundle, split_tokens, Path(folder))
            asyncio.run(_measure(changed, sentences, show))


if __name__ == "__main__":
    main()
