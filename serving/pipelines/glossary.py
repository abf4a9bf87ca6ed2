"""Which terms must occur in the translation of a segment, and in which tokens."""

import re
from collections.abc import Sequence

from serving.parameters import Term, TokenIds
from serving.pipelines.jobs import GlossaryEntry
from serving.text.borders import WordBorders
from serving.text.tokenizer import Tokenizer


class Glossary:
    """A term is found as whole words, in capitals or not."""

    def __init__(
        self, entries: Sequence[GlossaryEntry], tokenizer: Tokenizer, borders: WordBorders
    ) -> None:
        self._terms = [
            (_pattern(entry.term), _term(entry, tokenizer, borders)) for entry in entries
        ]

    def required(self, segment: str) -> tuple[Term, ...]:
        return tuple(term for pattern, term in self._terms if pattern.search(segment))


def _pattern(term: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(term)}(?!\w)", re.IGNORECASE)


def _term(entry: GlossaryEntry, tokenizer: Tokenizer, borders: WordBorders) -> Term:
    texts = [text.strip() for text in entry.translations]
    return Term(
        spellings=_ids(tokenizer, [" " + text for text in texts]),
        bare=_ids(tokenizer, [*texts, *map(_capitalised, texts)]),
        opening_ids=borders.opening_ids,
        inner_ids=borders.inner_ids,
    )


def _ids(tokenizer: Tokenizer, texts: list[str]) -> tuple[TokenIds, ...]:
    return tuple(dict.fromkeys(map(tuple, tokenizer.encode_batch(texts))))


def _capitalised(text: str) -> str:
    """As it may begin a sentence."""
    return text[:1].upper() + text[1:]
