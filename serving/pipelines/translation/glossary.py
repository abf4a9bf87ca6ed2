"""Finds the terms that must occur in the translation of a segment, and writes them in tokens."""

import re
from collections.abc import Callable, Sequence

from serving.errors import RequestError
from serving.parameters import Term, TokenIds
from serving.pipelines.translation.job import GlossaryEntry
from serving.text.guides.borders import WordBorders
from serving.text.tokenizer import Tokenizer

NOT_WRITABLE = "cannot be written with the model's vocabulary"


class Glossary:
    """Finds terms in a source, as whole words, in capitals or not.

    Raises RequestError for a translation that cannot be written.
    """

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
