"""Describes what a text with codes consists of: text, and codes by their numbers."""

from dataclasses import dataclass
from enum import Enum, auto


class Shift(Enum):
    """Says that text stands above or below the line."""

    SUPERSCRIPT = auto()
    SUBSCRIPT = auto()


@dataclass(frozen=True, slots=True)
class Open:
    number: int
    shift: Shift | None = None


@dataclass(frozen=True, slots=True)
class Close:
    number: int


@dataclass(frozen=True, slots=True)
class Single:
    """Stands between words by itself.

    parts: no sentence goes across it. is_line_break: it parts sentences only where the next line
        does not go on with a small letter.
    """

    number: int
    parts: bool = False
    is_line_break: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """Stands in a translation as in the source: H₂O, m², a page's number, the mark of a note.

    text: what stands for a word of the sentence; empty if it stands between words.
    """

    number: int
    items: tuple["Item", ...]
    text: str


Item = str | Open | Close | Single | Kept
