"""Find the texts of a plain file, and write the file with translations in their places.

Everything between them stays as it is. Marks within a text, such as `<b>` or `**`, are codes that
are written back unchanged.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from pathlib import Path

from serving.documents.codes import Close, Item, Open, Protected, Shift, Single
from serving.documents.encoding import TextFile
from serving.documents.fragment import Fragment, make_fragment

_DEEPEST_PAIR = 100  # marks nested deeper are single
SHIFT_TAGS = {"sub": Shift.SUBSCRIPT, "sup": Shift.SUPERSCRIPT}
Edit = tuple[int, int, str]  # start, end, replacement


class MarkRole(Enum):
    OPENS = auto()
    CLOSES = auto()
    STANDS = auto()
    SENTENCE_END = auto()  # single, and ends a sentence
    LINE_BREAK = auto()  # ends a sentence, unless the next line begins with a small letter


@dataclass(frozen=True, slots=True)
class InlineMark:
    """A part of a text that is not words.

    name: an opening mark is closed by the next mark of the same name.
    shift: of an opening mark of text above or below the line.
    visible_text: what a single mark means as a word of the sentence.
    character: the character that it means within a word.
    """

    raw: str
    role: MarkRole = MarkRole.STANDS
    name: str = ""
    shift: Shift | None = None
    visible_text: str = ""
    character: str = ""


class TextSpan:
    """A text of a file, and what its codes stand for.

    pieces: unescaped text, and marks as they are in the file. escape: escapes a text for the file.
    """

    def __init__(
        self,
        start: int,
        end: int,
        pieces: Sequence[str | InlineMark],
        escape: Callable[[str], str] = str,
    ) -> None:
        self.start, self.end = start, end
        self._escape = escape
        self._raws: dict[tuple[type, int], str] = {}
        self._characters = {p.character: p.raw for p in pieces if isinstance(p, InlineMark)}
        self.fragment: Fragment = make_fragment(self._items(pieces))

    def apply_translation(self, translation: str) -> str:
        return "".join(
            self._text(item) if isinstance(item, str) else self._raws[type(item), item.number]
            for item in self.fragment.restore_codes(translation)
        )

    def _text(self, text: str) -> str:
        """Escape text; write characters as the marks that the source has for them."""
        pattern = "|".join(map(re.escape, filter(None, self._characters))) or r"(?!)"
        parts = re.split(f"({pattern})", text)
        return "".join(self._characters.get(part) or self._escape(part) for part in parts if part)

    def _items(self, pieces: Sequence[str | InlineMark]) -> list[Item]:
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
            elif piece.visible_text.strip() and isinstance(item, Single):
                items.append(Protected(item.number, (item,), piece.visible_text))
            else:
                items.append(item)
        return items


def _single(number: int, mark: InlineMark) -> Single:
    return Single(number, mark.role is MarkRole.SENTENCE_END, mark.role is MarkRole.LINE_BREAK)


def _pairs(pieces: Sequence[str | InlineMark]) -> dict[int, Open | Close]:
    """Return opening and closing marks by their places. Marks without a partner are in no pair."""
    opened: list[tuple[str, int]] = []
    num_open: Counter[str] = Counter()
    pairs: dict[int, Open | Close] = {}
    for place, piece in enumerate(pieces):
        if not isinstance(piece, InlineMark):
            continue
        if piece.role is MarkRole.OPENS and len(opened) < _DEEPEST_PAIR:
            opened.append((piece.name, place))
            num_open[piece.name] += 1
        elif piece.role is MarkRole.CLOSES and num_open[piece.name]:
            while opened:
                name, begin = opened.pop()
                num_open[name] -= 1
                if name == piece.name:
                    pairs[begin] = Open(begin + 1, _shift(pieces[begin]))
                    pairs[place] = Close(begin + 1)
                    break
    return pairs


def _shift(piece: str | InlineMark) -> Shift | None:
    return piece.shift if isinstance(piece, InlineMark) else None


def replace_spans(text: str, spans: Iterable[TextSpan], translations: Iterable[str]) -> str:
    """Return the text with translations in the places of the spans, which are in order."""
    parts: list[str] = []
    end = 0
    for span, translation in zip(spans, translations, strict=True):
        parts += [text[end : span.start], span.apply_translation(translation)]
        end = span.end
    return "".join([*parts, text[end:]])


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits made; those of one place are made in their order."""
    parts: list[str] = []
    end = 0
    for start, stop, new in sorted(edits, key=lambda edit: edit[:2]):
        parts += [text[end:start], new]
        end = stop
    return "".join([*parts, text[end:]])


class PlainDocument:
    """A text file and its spans with words."""

    def __init__(self, file: TextFile, spans: Iterable[TextSpan]) -> None:
        self._file = file
        self._spans = _keep_with_words(spans)

    @property
    def fragments(self) -> Sequence[str]:
        return [span.fragment.xml for span in self._spans]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        self._file.write(replace_spans(self._file.text, self._spans, translations), target)


class LayeredDocument:
    """A text file with texts inside the marks of other texts, as in attributes of tags.

    layers: functions that find spans, which must not overlap. The spans of the first layer are
    replaced first; that must not change what the next layers find.
    declare_language: declares the language in the text.
    """

    def __init__(
        self,
        file: TextFile,
        layers: Sequence[Callable[[str], Iterable[TextSpan]]],
        declare_language: Callable[[str, str], str] = lambda text, language: text,
    ) -> None:
        self._file, self._layers, self._declare_language = file, layers, declare_language
        self._spans = [_keep_with_words(layer(file.text)) for layer in layers]
        self.fragments: Sequence[str] = [
            span.fragment.xml for spans in self._spans for span in spans
        ]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        target.write_bytes(self.encode_translation(translations, language))

    def encode_translation(self, translations: Sequence[str], language: str) -> bytes:
        """Return the content of the file with translations."""
        text, waiting = self._file.text, iter(translations)
        for layer, spans in zip(self._layers, self._spans, strict=True):
            if text != self._file.text:
                spans = _keep_with_words(layer(text))
            text = replace_spans(text, spans, [*islice(waiting, len(spans))])
        return self._file.encode(self._declare_language(text, language))


def _keep_with_words(spans: Iterable[TextSpan]) -> list[TextSpan]:
    return [span for span in spans if span.fragment.has_words]
