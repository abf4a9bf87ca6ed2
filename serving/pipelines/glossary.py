"""Which terms must occur in the translation of a segment, and in which tokens."""

import re
from collections.abc import Sequence

from serving.parameters import Term
from serving.pipelines.jobs import GlossaryEntry
from serving.pipelines.requests import spellings
from serving.text.tokenizer import Tokenizer


class Glossary:
    """A term is found as whole words, in capitals or not."""

    def __init__(self, entries: Sequence[GlossaryEntry], tokenizer: Tokenizer) -> None:
        self._terms = [(_pattern(entry.term), _term(entry, tokenizer)) for entry in entries]

    def required(self, segment: str) -> tuple[Term, ...]:
        return tuple(term for pattern, term in self._terms if pattern.search(segment))


def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", re.IGNORECASE)


def _term(entry: GlossaryEntry, tokenizer: Tokenizer) -> Term:
    return tuple(ids for text in entry.translations for ids in spellings(tokenizer, text))
