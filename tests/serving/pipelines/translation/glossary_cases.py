"""Makes test cases for glossaries, of terms that the reference has and of made-up ones."""

import gzip
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

WORD = re.compile(r"[^\W\d_]+")
ORIGINS = {"tatoeba", "multi30k", "ddtp", "lohelp", "wesnoth"}
MIN_DICE = 0.05
MOST_OF_A_TERM = 6  # sentences
NUM_COMMON = 150  # words that are too frequent to be terms

# English nouns: what French references say, what a customer prefers, both with their genders, and
# what one prefers in Portuguese.
_NOUNS = """
    hat: chapeau m, bonnet m, boné
    station: gare f, gare routière f, rodoviária
    dog: chien m, toutou m, cachorrinho
    boy: garçon m, gamin m, rapazinho
    girl: fille f, demoiselle f, moça
    woman: femme f, dame f, senhora
    car: voiture f, bagnole f, viatura
    house: maison f, demeure f, moradia
    book: livre m, bouquin m, volume
    street: rue f, chaussée f, avenida
    ball: ballon m, balle f, pelota
    shirt: chemise f, tunique f, blusa
    bike: vélo m, bicyclette f, bicicleta elétrica
    horse: cheval m, poney m, cavalinho
    beach: plage f, grève f, orla
    doctor: médecin m, docteur m, doutor
    guitar: guitare f, guitare sèche f, viola
    field: champ m, pré m, gramado
    boat: bateau m, navire m, navio
    bench: banc m, siège m, assento
    building: bâtiment m, immeuble m, edifício comercial
    jacket: veste f, blouson m, casaco
    grass: herbe f, pelouse f, relva
    bus: bus m, car scolaire m, autocarro
    mountain: montagne f, colline f, colina
"""
_TRANSLATIONS = {
    noun: tuple(translations.split(", "))
    for noun, translations in (row.strip().split(": ") for row in _NOUNS.strip().split("\n"))
}
_FEMININE = {"un": "une", "le": "la", "du": "de la", "au": "à la", "son": "sa", "ce": "cette"}
_ARTICLES = "|".join(
    [*_FEMININE, *_FEMININE.values(), r"de l['’]", r"à l['’]", r"[ld]['’]", "cet", "quel", "quelle"]
)
_FULL = {"l'": "le", "de l'": "du", "à l'": "au", "d'": "de", "cet": "ce"}


@dataclass(frozen=True)
class Case:
    """A sentence, its glossary, and the expected translations: without the glossary and with it.

    kind: "reference" if the reference has the terms, "preferred" if they were made up.
    """

    kind: str
    source: str
    glossary: Mapping[str, str]
    plain: str
    expected: str


def cases(data: Path, count: int) -> list[Case]:
    """Return half of each kind, spread over the test sentences."""
    pairs = [pair for pair in _pairs(data / "test.tsv.gz") if 6 <= len(pair[0].split()) <= 30]
    synonyms = Synonyms(list(_pairs(data / "train.tsv.gz")))
    reference = [
        Case("reference", source, terms, target, target)
        for source, target in pairs
        if (terms := synonyms.terms(source, target))
    ]
    preferred = [case for pair in pairs if (case := _make_preferred(*pair))]
    return [*_spread(reference, count // 2), *_spread(preferred, count - count // 2)]


def portuguese_cases(data: Path, count: int) -> list[Case]:
    """Return made-up terms only: there is no Portuguese reference."""
    cases = []
    for source, _ in _pairs(data / "test.tsv.gz"):
        words = WORD.findall(source.lower())
        glossary = {word: _TRANSLATIONS[word][2] for word in words if word in _TRANSLATIONS}
        if 6 <= len(source.split()) <= 30 and glossary:
            cases.append(Case("preferred", source, dict(islice(glossary.items(), 2)), "", ""))
    return _spread(cases, count)


class Synonyms:
    """Finds translations of words by the Dice coefficient of words in sentence pairs."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._source_counts, self._target_counts = Counter[str](), Counter[str]()
        self._both: dict[str, Counter[str]] = {}
        for source, target in pairs:
            source_words, target_words = _words(source), _words(target)
            self._source_counts.update(source_words)
            self._target_counts.update(target_words)
            for word in source_words:
                self._both.setdefault(word, Counter()).update(target_words)
        self._common = {
            word
            for counts in (self._source_counts, self._target_counts)
            for word, _ in counts.most_common(NUM_COMMON)
        }

    def terms(self, source: str, target: str) -> dict[str, str]:
        """Return up to two words whose translation in the target is not the usual one."""
        source_words, target_words = (
            sorted(_words(text) - self._common) for text in (source, target)
        )
        terms = {}
        for word in source_words:
            if len(word) < 3 or not self._both.get(word) or source.count(word) != 1:
                continue
            best = max(target_words, key=lambda other: self._dice(word, other), default="")
            usual = max(sorted(self._both[word]), key=lambda other: self._dice(word, other))
            is_own = max(source_words, key=lambda other: self._dice(other, best)) == word
            is_like = best[:4] in (usual[:4], word[:4])
            if is_own and not is_like and self._dice(word, best) >= MIN_DICE:
                terms[word] = best
        return dict(islice(terms.items(), 2))

    def _dice(self, source_word: str, target_word: str) -> float:
        both = self._both.get(source_word, Counter())[target_word]
        return (
            2 * both / max(self._source_counts[source_word] + self._target_counts[target_word], 1)
        )


def _make_preferred(source: str, target: str) -> Case | None:
    glossary: dict[str, str] = {}
    expected = target
    for word in WORD.findall(source.lower()):
        singular = word.removesuffix("s")
        for noun, is_plural in ((word, False), (singular, singular != word)):
            if noun not in _TRANSLATIONS or len(glossary) == 2 or word in glossary:
                continue
            usual, new = (_plural(text) if is_plural else text for text in _TRANSLATIONS[noun][:2])
            if source.lower().split().count(word) == 1 and _holds(expected, usual[:-2]):
                expected = _exchange(expected, usual, new)
                glossary[word] = new[:-2]
    return Case("preferred", source, glossary, target, expected) if glossary else None


def _holds(text: str, phrase: str) -> bool:
    return len(re.findall(rf"\b{phrase}\b", text, re.IGNORECASE)) == 1


def _plural(text: str) -> str:
    """Return the plural of a noun and its gender, "bateau m" or the like."""
    return " ".join([*map(_plural_word, text[:-2].split()), text[-1]])


def _plural_word(word: str) -> str:
    if word.endswith("al"):
        return f"{word[:-2]}aux"
    return word if word.endswith("s") else word + ("x" if word.endswith("eau") else "s")


def _exchange(text: str, usual: str, new: str) -> str:
    """Replace a noun by another one, with the article that it needs."""
    pattern = re.compile(rf"(?:\b({_ARTICLES})(\s*))?\b{usual[:-2]}\b", re.IGNORECASE)

    def other(match: re.Match[str]) -> str:
        if not match[1]:
            return new[:-2]
        article = match[1].lower().replace("’", "'")
        article = _FULL.get(article, article)
        masculine = {
            feminine: masculine_article for masculine_article, feminine in _FEMININE.items()
        }.get(article, article)
        new_article = _FEMININE.get(masculine, masculine) if new.endswith("f") else masculine
        if match[1][0].isupper():
            new_article = new_article[0].upper() + new_article[1:]
        return f"{new_article} {new[:-2]}"

    return pattern.sub(other, text)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            origin, source, target = line.rstrip("\n").split("\t")
            if origin in ORIGINS:
                yield source, target


def _words(text: str) -> set[str]:
    return set(WORD.findall(text.lower()))


def _spread(all_cases: list[Case], count: int) -> list[Case]:
    """Return so many cases, evenly spaced, with few of each term."""
    num_of_term = Counter[str]()
    cases = []
    for case in all_cases:
        num_of_term.update(list(case.glossary))
        if all(num_of_term[term] <= MOST_OF_A_TERM for term in case.glossary):
            cases.append(case)
    step = max(len(cases) / count, 1)
    return [cases[int(number * step)] for number in range(min(count, len(cases)))]
