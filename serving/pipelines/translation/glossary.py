"""Find the terms of a glossary in a segment, and their translations in its translation."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.errors import RequestError
from serving.pipelines.translation.job import GlossaryEntry
from serving.requests.parameters import MAX_WORD_TOKENS
from serving.text.spans import Span
from serving.text.terms import TextWords, any_term_pattern, first_word, term_pattern
from serving.text.tokenizer import Tokenizer

MAX_TERMS_PER_SEGMENT = 64  # in one segment
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
        self._translations = [_writable_translations(entry, tokenizer) for entry in entries]
        self._numbers_by_word: dict[str, list[int]] = {}
        for number, entry in enumerate(entries):
            self._numbers_by_word.setdefault(first_word(entry.term), []).append(number)

    def match(self, segment: str) -> tuple[MatchedTerm, ...]:
        """Return the terms of a segment in order. Raises RequestError if there are too many."""
        matches = self._longest_matches(segment)
        if len(matches) > MAX_TERMS_PER_SEGMENT:
            message = f"at most {MAX_TERMS_PER_SEGMENT} terms may occur in one sentence"
            raise RequestError("glossary", len(matches), message)
        return tuple(MatchedTerm(match.span, self._translations[match.number]) for match in matches)

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the spans of terms in a text of any length."""
        return (match.span for match in self._longest_matches(text))

    def _longest_matches(self, text: str) -> "list[_Match]":
        """Return the matches that do not overlap, in order; longer ones are preferred."""
        chosen: list[_Match] = []
        for match in sorted(self._matches(text), key=lambda match: (*match.rank, match.span)):
            if not any(overlap(match.span, other.span) for other in chosen):
                chosen.append(match)
        return sorted(chosen, key=lambda match: match.span)

    def _matches(self, segment: str) -> Iterator["_Match"]:
        words = TextWords(segment)
        for word in words.first_words():
            for number in self._numbers_by_word.get(word, ()):
                term = self._entries[number].term
                if words.may_have(term):
                    occurrences = term_pattern(term).finditer(segment)
                    yield from (_Match(number, term, match) for match in occurrences)


class _Match:
    """One occurrence of the term of an entry."""

    def __init__(self, number: int, term: str, match: re.Match[str]) -> None:
        self.number, self.span = number, Span(*match.span())
        self.rank = (self.span.start - self.span.end, match.group() != term, number)


def overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end


def _writable_translations(entry: GlossaryEntry, tokenizer: Tokenizer) -> tuple[str, ...]:
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

    def __init__(self, terms: Sequence[MatchedTerm]) -> None:
        self.terms = terms
        self._num_wanted = Counter(term.translations for term in terms)
        self._translations_by_spelling = {
            spelling: term.translations
            for term in terms
            for text in term.translations
            for spelling in (text, capitalise(text))
        }
        self._pattern = any_term_pattern(self._translations_by_spelling)

    def find_in(self, text: str) -> list[tuple[Span, tuple[str, ...]]]:
        """Return the spans of the translations of terms in a text, each with its term's
        translations.
        """
        return [
            (Span(*match.span()), self._translations_by_spelling[match.group()])
            for match in self._pattern.finditer(text)
        ]

    def missing(self, text: str) -> list[MatchedTerm]:
        """Return all occurrences of the terms that the text contains too seldom."""
        num_written = Counter(translations for _, translations in self.find_in(text))
        return [
            term
            for term in self.terms
            if num_written[term.translations] < self._num_wanted[term.translations]
        ]

    def num_missing(self, text: str) -> int:
        num_written = Counter(translations for _, translations in self.find_in(text))
        return (self._num_wanted - num_written).total()


def capitalise(text: str) -> str:
    """Return a text as it would begin a sentence."""
    return text[:1].upper() + text[1:]
