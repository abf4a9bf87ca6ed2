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
            if text[match.start()].isupper():
                word = _POSSESSIVE.sub("", match.group())
                if self._is_unknown_name(word) or _follows_title(text, match.start()):
                    yield Span(match.start(), match.start() + len(word))

    def in_usual_letters(self, text: str) -> str:
        """Write a text as if it were not in capitals (truecasing, Lita et al. 2003)."""

        def usual(match: re.Match[str]) -> str:
            return self._usual.get(match.group(), match.group())

        return _WORD.sub(usual, text.lower())

    def _is_unknown_name(self, word: str) -> bool:
        if len(word) < 2 or word.isupper():
            return len(word) > 1 and _NUMERAL.fullmatch(word) is not None
        small = word.lower()
        is_known = small in self._usual or all(part in self._usual for part in _PARTS.split(small))
        return not is_known


def _follows_title(text: str, start: int) -> bool:
    return _TITLE.search(text, max(start - 8, 0), start) is not None
