"""Tells which names a model does not know, and how words in capitals are mostly written, by a list
of the words that it knows.
"""

import re
from collections.abc import Iterable, Iterator

from serving.bundle.opening import Bundle
from serving.text.spans import Span

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")
_PARTS = re.compile(r"['’-]")
# A name follows these, whatever else it may be: "Mrs. Rose".
_TITLE = re.compile(
    r"\b(?:Mr|Mrs|Ms|Mx|Dr|Prof|Rev|Capt|Sgt|Lt|Col|Gen|Sen|Gov|Sir|Madam|Lady|Mme|Mlle)\.? $"
)
# What is counted, abbreviated: p. 45, no. 5/B, vol. II.
_REFERENCE = re.compile(
    r"(?<![\w.])(?:[Nn]os?|[Pp]p?|[Rr]ef|[Nn]r|[Aa]pt|[Cc]h|[Vv]ol|[Ff]igs?|[Ss]ecs?|[Aa]rt|[Pp]ara|[Ee]q"
    r"|[Ee]xt)\. ?"
    r"(?:\d[\w/,.–-]*\w|\d|[IVX]{2,}(?!\w))"
)
_LONGEST_TITLE = 8  # characters with what follows: "Madam. ", "Prof. "
_NUMERAL = re.compile(r"X{0,3}(?:IX|IV|V?I{0,3})")


class KnownWords:
    """The words that a model knows of the languages it reads, as they are mostly written."""

    def __init__(self, words: Iterable[str]) -> None:
        self._usual = {word.lower(): word for word in words}

    @classmethod
    def load(cls, bundle: Bundle) -> "KnownWords | None":
        """Read a bundle's list; None where it has none."""
        text = bundle.words_text
        return None if text is None else cls(text.split())

    def has_names(self, text: str, source_capitalizes_nouns: bool) -> bool:
        """Return whether a text has references or, in a language that does not write all nouns with
        capitals, unknown names.
        """
        if _REFERENCE.search(text):
            return True
        if source_capitalizes_nouns:
            return False
        return next(self.unknown_words(text), None) is not None

    def references(self, text: str) -> Iterator[Span]:
        """Yield where references to numbered things stand, as p. 45."""
        return (Span(*match.span()) for match in _REFERENCE.finditer(text))

    def unknown_names(self, text: str) -> Iterator[Span]:
        """Yield where unknown names stand; those that only a space parts are one."""
        start = end = 0
        for word in self.unknown_words(text):
            if not (start < end and text[end : word.start] == " "):
                if start < end:
                    yield Span(start, end)
                start = word.start
            end = word.end
        if start < end:
            yield Span(start, end)

    def unknown_words(self, text: str) -> Iterator[Span]:
        """Yield where the words of unknown names stand."""
        for match in _WORD.finditer(text):
            start = match.start()
            if not text[start].isupper():
                continue
            word = _POSSESSIVE.sub("", match.group())
            small = word.lower()
            if len(word) < 2:
                is_unknown = False
            elif word.isupper():
                is_unknown = _NUMERAL.fullmatch(word) is not None
            else:
                is_unknown = small not in self._usual and not all(
                    part in self._usual for part in _PARTS.split(small)
                )
            if is_unknown or _TITLE.search(text, max(start - _LONGEST_TITLE, 0), start):
                yield Span(start, start + len(word))

    def in_usual_letters(self, text: str) -> str:
        """Write a text as if it were not in capitals (truecasing, Lita et al. 2003)."""

        def usual(match: re.Match[str]) -> str:
            return self._usual.get(match.group(), match.group())

        return _WORD.sub(usual, text.lower())
