"""Finds the terms that must occur in the translation of a segment, and writes them in tokens."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from serving.errors import RequestError
from serving.parameters import Term, TokenIds
from serving.pipelines.translation.job import GlossaryEntry
from serving.text.guides.borders import WordBorders
from serving.text.terms import Words, first_word, term_pattern
from serving.text.tokenizer import Tokenizer

NOT_WRITABLE = "cannot be written with the model's vocabulary"


class Glossary:
    """Finds terms in a source. Where several share a word the longest is meant, and of terms that
    differ in capitals only the one that is written so.

    Raises RequestError for a translation that cannot be written.
    """

    def __init__(
        self, entries: Sequence[GlossaryEntry], tokenizer: Tokenizer, borders: WordBorders
    ) -> None:
        self._entries = entries
        self._terms = [_term(entry, tokenizer, borders) for entry in entries]
        self._numbers_of: dict[str, list[int]] = {}
        for number, entry in enumerate(entries):
            self._numbers_of.setdefault(first_word(entry.term), []).append(number)

    def required(self, segment: str) -> tuple[Term, ...]:
        if not self._terms:
            return ()
        return tuple(self._terms[number] for number in sorted(_meant(self._found(segment))))

    def _found(self, segment: str) -> Iterator["_Found"]:
        words = Words(segment)
        for word in words.first_words():
            for number in self._numbers_of.get(word, ()):
                term = self._entries[number].term
                if words.may_have(term):
                    found = term_pattern(term).finditer(segment)
                    yield from (_Found(number, term, match) for match in found)


class _Found:
    """Holds one place where the term of an entry occurs."""

    def __init__(self, number: int, term: str, match: re.Match[str]) -> None:
        self.number, self.start, self.end = number, match.start(), match.end()
        self.rank = (self.start - self.end, match.group() != term, number)


def _meant(found: Iterable[_Found]) -> set[int]:
    """Return the numbers of the entries that are left where longer ones go first."""
    taken: list[_Found] = []
    for each in sorted(found, key=lambda each: each.rank):
        if all(each.end <= other.start or other.end <= each.start for other in taken):
            taken.append(each)
    return {each.number for each in taken}


def _term(entry: GlossaryEntry, tokenizer: Tokenizer, borders: WordBorders) -> Term:
    """Write the translations of a term in tokens. A tokenizer whose words have no space before them
    has bare spellings only.
    """
    texts = [text.strip() for text in entry.translations]
    for text in texts:
        if not tokenizer.can_write(text):
            raise RequestError("glossary", text, NOT_WRITABLE)
    anywhere = [*texts, *map(_capitalised, texts)]
    inside = _ids(tokenizer.encode_inside, anywhere)
    apart = _ids(tokenizer.encode_inside, [" " + text for text in texts])
    apart = [ids for ids in apart if ids not in inside]
    begun = [ids for ids in _ids(tokenizer.encode, anywhere) if ids not in apart]
    return Term(
        spellings=tuple(apart),
        bare=tuple(dict.fromkeys([*inside, *begun])),
        opening_ids=borders.opening_ids,
        inner_ids=borders.inner_ids,
    )


def _ids(encode: Callable[[str], list[int]], texts: list[str]) -> list[TokenIds]:
    return list(dict.fromkeys(tuple(encode(text)) for text in texts))


def _capitalised(text: str) -> str:
    """Return a text as it may begin a sentence."""
    return text[:1].upper() + text[1:]
