"""Names languages as DeepL's clients do: EN, EN-US, ZH-HANS; which there are, models say.

Sources are named without a region. English, Portuguese and Chinese are targets as the variants that
DeepL has, as far as a model's own code agrees with them; EN and PT alone are understood too.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from serving.glossaries.entries import Pair
from serving.pipelines.cards import ModelCard
from serving.pipelines.pivoting import targets_by_source
from serving.text.languages import UNDETERMINED, language_name, matching, primary_language

_VARIANTS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
    "zh": {"ZH-HANS": "Chinese (simplified)", "ZH-HANT": "Chinese (traditional)"},
}


def source_name(code: str) -> str:
    """Return what DeepL calls the source language of that code of a model's or a client's."""
    return primary_language(code).upper()


def sources(cards: Sequence[ModelCard]) -> list[dict[str, str]]:
    """List the languages that can be translated from."""
    codes = [code for code in targets_by_source(cards) if code != UNDETERMINED]
    return [{"language": name, "name": language_name(code)} for name, code in _named(codes).items()]


def targets(cards: Sequence[ModelCard]) -> list[dict[str, str | bool]]:
    """List the languages that can be translated into. No model here knows formality."""
    codes = {code for into in targets_by_source(cards).values() for code in into}
    found = dict(_variants(codes))
    return [
        {"language": name, "name": found[name], "supports_formality": False}
        for name in sorted(found)
    ]


def pairs(cards: Sequence[ModelCard]) -> list[Pair]:
    """List the pairs of languages that a glossary may have."""
    found = {
        Pair.of(source, target)
        for source, into in targets_by_source(cards).items()
        for target in into
        if source != UNDETERMINED
    }
    return sorted(found, key=lambda pair: (pair.source, pair.target))


def _variants(codes: Iterable[str]) -> Iterator[tuple[str, str]]:
    known = tuple(codes)
    for name, code in _named(known).items():
        variants = _VARIANTS.get(primary_language(code), {})
        meant = {each: text for each, text in variants.items() if matching(each, known)}
        yield from meant.items() if meant else [(name, language_name(code))]


def _named(codes: Iterable[str]) -> dict[str, str]:
    """Name languages; of a language in several scripts or regions each has its whole code."""
    ordered = sorted({*codes})
    counts = Counter(map(primary_language, ordered))
    return {
        _whole(code) if counts[primary_language(code)] > 1 else source_name(code): code
        for code in ordered
    }


def _whole(code: str) -> str:
    _, *others = code.upper().replace("_", "-").split("-")
    return "-".join((source_name(code), *others))
