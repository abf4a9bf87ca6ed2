"""Finds the stretches of a plain file that are translated, and puts translations in their places.

All between them stays as it is, to the character. Marks within a stretch, as `<b>` or `**`, are
codes that come back as they were written.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from pathlib import Path

from serving.documents.codes import Close, Item, Kept, Open, Shift, Single
from serving.documents.encoding import TextFile
from serving.documents.fragment import Fragment, fragment_of

_DEEPEST_PAIR = 100  # marks within more stand by themselves


class Role(Enum):
    OPENS = auto()
    CLOSES = auto()
    STANDS = auto()
    PARTS = auto()  # stands by itself, and no sentence goes across it
    LINE_BREAK = auto()  # parts sentences, unless the next line goes on with a small letter


@dataclass(frozen=True, slots=True)
class Mark:
    """Describes what is no text. name: what opens is closed by the next of the same name.

    shift: of what opens text above or below the line. shown: what a mark by itself stands for in a
    sentence. character: what it is within a word.
    """

    raw: str
    role: Role = Role.STANDS
    name: str = ""
    shift: Shift | None = None
    shown: str = ""
    character: str = ""


SHIFT_TAGS = {"sub": Shift.SUBSCRIPT, "sup": Shift.SUPERSCRIPT}


class Span:
    """Holds a stretch of a file and what its codes stand for.

    pieces: its text, as it is meant, and its marks, as they are written.
    written: makes of a text what stands for it in the file.
    """

    def __init__(
        self,
        start: int,
        end: int,
        pieces: Sequence[str | Mark],
        written: Callable[[str], str] = str,
    ) -> None:
        self.start, self.end = start, end
        self._written = written
        self._raws: dict[tuple[type, int], str] = {}
        self._characters = {p.character: p.raw for p in pieces if isinstance(p, Mark)}
        self.fragment: Fragment = fragment_of(self._items(pieces))

    def translated(self, translation: str) -> str:
        return "".join(
            self._text(item) if isinstance(item, str) else self._raws[type(item), item.number]
            for item in self.fragment.restored(translation)
        )

    def _text(self, text: str) -> str:
        """Write text, and characters that the file writes as marks as it does."""
        pattern = "|".join(map(re.escape, filter(None, self._characters))) or r"(?!)"
        parts = re.split(f"({pattern})", text)
        return "".join(self._characters.get(part) or self._written(part) for part in parts if part)

    def _items(self, pieces: Sequence[str | Mark]) -> list[Item]:
        pairs = _pairs(pieces)
        items: list[Item] = []
        for place, piece in enumerate(pieces):
            if isinstance(piece, str):
                items.append(piece)
                continue
            item = pairs.get(place) or _single(place + 1, piece)
            self._raws[type(item), item.number] = piece.raw
            if piece.character:
                items.append(piece.character)
            elif piece.shown.strip() and isinstance(item, Single):
                items.append(Kept(item.number, (item,), piece.shown))
            else:
                items.append(item)
        return items


def _single(number: int, mark: Mark) -> Single:
    return Single(number, mark.role is Role.PARTS, mark.role is Role.LINE_BREAK)


def _pairs(pieces: Sequence[str | Mark]) -> dict[int, Open | Close]:
    """Find which mark closes which; what is left open, or was never opened, is in no pair."""
    opened: list[tuple[str, int]] = []
    pairs: dict[int, Open | Close] = {}
    for place, piece in enumerate(pieces):
        if not isinstance(piece, Mark):
            continue
        if piece.role is Role.OPENS and len(opened) < _DEEPEST_PAIR:
            opened.append((piece.name, place))
        elif piece.role is Role.CLOSES and piece.name in [name for name, _ in opened]:
            while opened:
                name, begun = opened.pop()
                if name == piece.name:
                    pairs[begun] = Open(begun + 1, _shift_of(pieces[begun]))
                    pairs[place] = Close(begun + 1)
                    break
    return pairs


def _shift_of(piece: str | Mark) -> Shift | None:
    return piece.shift if isinstance(piece, Mark) else None


def replaced(text: str, spans: Iterable[Span], translations: Iterable[str]) -> str:
    """Return the text with a translation in the place of each span; spans are in their order."""
    parts: list[str] = []
    end = 0
    for span, translation in zip(spans, translations, strict=True):
        parts += [text[end : span.start], span.translated(translation)]
        end = span.end
    return "".join([*parts, text[end:]])


Edit = tuple[int, int, str]  # the text between two places, and what takes its place


def edited(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made; those of one place come in their order."""
    parts: list[str] = []
    end = 0
    for start, stop, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[end:start], new]
        end = stop
    return "".join([*parts, text[end:]])


class PlainDocument:
    """Holds the stretches with words of a file, in their order."""

    def __init__(self, file: TextFile, spans: Iterable[Span]) -> None:
        self._file = file
        self._spans = _with_words(spans)

    @property
    def fragments(self) -> Sequence[str]:
        return [span.fragment.xml for span in self._spans]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        self._file.write(replaced(self._file.text, self._spans, translations), target)


class LayeredDocument:
    """Holds the stretches with words of a file, some of which stand within marks of others, as what
    an attribute of a tag says.

    layers: each finds stretches that are not within each other; those of the first are translated
        first. What they are then must not change which the others find, or their fragments.
    in_language: lets a text say which language it is in.
    """

    def __init__(
        self,
        file: TextFile,
        layers: Sequence[Callable[[str], Iterable[Span]]],
        in_language: Callable[[str, str], str] = lambda text, language: text,
    ) -> None:
        self._file, self._layers, self._in_language = file, layers, in_language
        self.fragments: Sequence[str] = [
            span.fragment.xml for layer in layers for span in _with_words(layer(file.text))
        ]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        text, waiting = self._file.text, iter(translations)
        for layer in self._layers:
            spans = _with_words(layer(text))
            text = replaced(text, spans, [*islice(waiting, len(spans))])
        self._file.write(self._in_language(text, language), target)


def _with_words(spans: Iterable[Span]) -> list[Span]:
    return [span for span in spans if span.fragment.has_words]
