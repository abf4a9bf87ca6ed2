"""Find the terms of a glossary in a segment, and their translations in its translation."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from serving.errors import RequestError
from serving.pipelines.translation.job import GlossaryEntry
from serving.requests.parameters import MAX_WORD_TOKENS
from serving.text.spans import Span
from serving.text.terms import TextWords, any_term_pattern, first_word, term_pattern
from serving.text.tokenizer import Tokenizer

MAX_TERMS = 64  # in one segment
NOT_WRITABLE = "cannot be written with the model's vocabulary"


@dataclass(frozen=True, slots=True)
class MatchedTerm:
    """An occurrence of a term in a segment, and the term's translations."""

    span: Span
    translations: tuple[str, ...]


class TermMatcher:
    """Finds terms in a source. Where terms overlap the longest one counts; of terms that differ in
    capitals only, the one with the spelling of the source.

    Raises RequestError for a translation that the model cannot write.
    """

    def __init__(self, entries: Sequence[GlossaryEntry], tokenizer: Tokenizer) -> None:
        self._entries = entries
        self._translations = [_checked(entry, tokenizer) for entry in entries]
        self._numbers_of: dict[str, list[int]] = {}
        for number, entry in enumerate(entries):
            self._numbers_of.setdefault(first_word(entry.term), []).append(number)

    def found(self, segment: str) -> tuple[MatchedTerm, ...]:
        """Return the terms of a segment in order. Raises RequestError if there are too many."""
        if not self._entries:
            return ()
        meant = self._in_order(segment)
        if len(meant) > MAX_TERMS:
            message = f"at most {MAX_TERMS} terms may occur in one sentence"
            raise RequestError("glossary", len(meant), message)
        return tuple(MatchedTerm(each.span, self._translations[each.number]) for each in meant)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of terms in a text of any length."""
        return (each.span for each in self._in_order(text))

    def _in_order(self, text: str) -> "list[_Match]":
        return sorted(_longest_matches(self._matches(text)), key=lambda each: each.span)

    def _matches(self, segment: str) -> Iterator["_Match"]:
        words = TextWords(segment)
        for word in words.first_words():
            for number in self._numbers_of.get(word, ()):
                term = self._entries[number].term
                if words.may_have(term):
                    found = term_pattern(term).finditer(segment)
                    yield from (_Match(number, term, match) for match in found)


class _Match:
    """One occurrence of the term of an entry."""

    def __init__(self, number: int, term: str, match: re.Match[str]) -> None:
        self.number, self.span = number, Span(*match.span())
        self.rank = (self.span.start - self.span.end, match.group() != term, number)


def _longest_matches(matches: Iterable[_Match]) -> list[_Match]:
    """Return the matches that do not overlap; longer ones come first."""
    taken: list[_Match] = []
    for each in sorted(matches, key=lambda each: (*each.rank, each.span)):
        if not any(overlap(each.span, other.span) for other in taken):
            taken.append(each)
    return taken


def overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _checked(entry: GlossaryEntry, tokenizer: Tokenizer) -> tuple[str, ...]:
    texts = tuple(text.strip() for text in entry.translations)
    for text in texts:
        if not tokenizer.can_write(text):
            raise RequestError("glossary", text, NOT_WRITABLE)
        if len(tokenizer.encode_inside(f" {text}")) > MAX_WORD_TOKENS:
            message = f"must have at most {MAX_WORD_TOKENS} tokens each"
            raise RequestError("glossary", text, message)
    return texts


class WantedTerms:
    """The terms that the translation of a segment must contain, each as often as its source."""

    def __init__(self, found: Sequence[MatchedTerm]) -> None:
        self.found = found
        self._num_wanted = Counter(each.translations for each in found)
        self._owner = {
            spelling: each.translations
            for each in found
            for text in each.translations
            for spelling in (text, capitalised(text))
        }
        self._pattern = any_term_pattern(self._owner)

    def written(self, text: str) -> list[tuple[Span, tuple[str, ...]]]:
        """Return the spans of the translations of terms in a text, each with its term."""
        matches = self._pattern.finditer(text)
        return [(Span(*match.span()), self._owner[match.group()]) for match in matches]

    def missing(self, text: str) -> list[MatchedTerm]:
        """Return all occurrences of the terms that the text contains too seldom."""
        num_written = Counter(translations for _, translations in self.written(text))
        return [
            each
            for each in self.found
            if num_written[each.translations] < self._num_wanted[each.translations]
        ]

    def num_missing(self, text: str) -> int:
        num_written = Counter(translations for _, translations in self.written(text))
        return (self._num_wanted - num_written).total()


def capitalised(text: str) -> str:
    """Return a text as it would begin a sentence."""
    return text[:1].upper() + text[1:]
