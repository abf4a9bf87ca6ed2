"""Messages of programs: translations keep their placeholders and accelerators."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from serving.documents.fragment import Fragment, Single
from serving.documents.spans import Mark, Span
from serving.documents.tags import message_pieces

# Formats whose arguments may be numbered, `%1$s`, and others like C's `printf`.
_NUMBERED = frozenset(
    {"c-format", "objc-format", "php-format", "java-printf-format", "ruby-format", "perl-format"}
)
_PRINTF = _NUMBERED | {"python-format", "lua-format", "go-format", "object-pascal-format"}
# Placeholders of the next argument: not `%%`, `%1$s`, `%(name)s`, `%m` or Qt's `%1`.
_ARGUMENT = re.compile(r"%(?![\d*.]*\$|\d+\$|\(|%|m|L?\d+$)[^%]*[a-zA-Z@>](?:%%)?$")
_OF_DATES = re.compile(r"%[-_0^#]?[aAbBHIjmMpSUwWyYZ]$")


class _Order(Enum):
    NUMBERED = auto()
    OF_THE_SOURCE = auto()
    FREE = auto()


class Message:
    """A message. flags: of its entry, such as `c-format`."""

    def __init__(self, source: str, flags: Iterable[str]) -> None:
        self.source = source
        formats = {flag for flag in flags if flag.endswith("-format")}
        self._is_printf = bool(formats & _PRINTF)
        self._accelerator = accelerator_of(self._words(source))
        text = self._accelerator.removed(source) if self._accelerator else source
        self._pieces = [*message_pieces(text, self._is_printf)]
        self._order = _order(formats, self._pieces)
        self._span = Span(0, 0, self._pieces)
        self.fragment: Fragment = self._span.fragment

    @property
    def placeholders(self) -> list[str]:
        pieces = message_pieces(self.source, self._is_printf)
        return sorted(each.raw for each in pieces if isinstance(each, Mark))

    def translated(self, translation: str) -> str:
        text = self._with_arguments_of(translation).translated(translation)
        return self._accelerator.put(text, self._words(text)) if self._accelerator else text

    def _with_arguments_of(self, translation: str) -> Span:
        """Return a span in which each argument keeps its value if a translation reorders them."""
        items = self.fragment.restored(translation)
        places = [item.number - 1 for item in items if isinstance(item, Single)]
        arguments = [place for place in places if _takes_an_argument(self._pieces[place])]
        in_order = sorted(arguments)
        if arguments == in_order or self._order is _Order.FREE:
            return self._span
        pieces = [*self._pieces]
        raws = [piece.raw for place in in_order if isinstance(piece := pieces[place], Mark)]
        if self._order is _Order.NUMBERED:
            raws, arguments = _numbered(raws), in_order
        for place, raw in zip(arguments, raws, strict=True):
            pieces[place] = Mark(raw)
        return Span(0, 0, pieces)

    def _words(self, text: str) -> list[tuple[int, str]]:
        words: list[tuple[int, str]] = []
        place = 0
        for piece in message_pieces(text, self._is_printf):
            if isinstance(piece, str):
                words.append((place, piece))
            place += len(piece.raw if isinstance(piece, Mark) else piece)
        return words


def _takes_an_argument(piece: str | Mark) -> bool:
    return isinstance(piece, Mark) and bool(_ARGUMENT.match(piece.raw))


def _order(formats: set[str], pieces: Iterable[str | Mark]) -> _Order:
    if formats & _NUMBERED:
        return _Order.NUMBERED
    marks = (piece.raw for piece in pieces if isinstance(piece, Mark))
    if (formats and not formats & _PRINTF) or any(map(_OF_DATES.match, marks)):
        return _Order.FREE
    return _Order.OF_THE_SOURCE


def _numbered(arguments: Sequence[str]) -> list[str]:
    """Number arguments in their original order: `%s %*d` becomes `%1$s %3$*2$d`."""
    number = 0
    numbered: list[str] = []
    for raw in arguments:
        *widths, last = raw[1:].split("*")
        own = ""
        for width in widths:
            number += 1
            own += f"{width}*{number}$"
        number += 1
        numbered.append(f"%{number}${own}{last}")
    return numbered


_MARKS = (
    re.compile(r"(?<!&)&(?=[^\W_])(?!\w+;|\w*=)"),
    # `user_id` and `MAX_SIZE` are names; `E_xit` is none.
    re.compile(r"(?:(?<![^\s(\[])|(?<=\b[A-Z])|(?<=\b[A-Z][a-z])|(?<=\b[A-Z][a-z]{2}))_(?=[^\W_])"),
    re.compile(r"(?<![^\s(\[])~(?=[^\W\d_])|(?<=\b[^\W\d_])~(?=[^\W\d_])"),
)
_SHORT_NAME = re.compile(r"\b[A-Z]{1,3}&[A-Z]{1,3}\b")  # AT&T
# In scripts without an alphabet the letter follows the text: (O).
_BEHIND = re.compile(r"\(([&_~])([A-Za-z\d])\)")
_WITHOUT_ALPHABET = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDING = re.compile(r"[\s.:…：。]*\Z")


@dataclass(frozen=True)
class Accelerator:
    """A mark before the letter that opens a menu by keyboard, as in `&Open`, and its place."""

    mark: str
    letter: str
    start: int
    end: int

    def removed(self, text: str) -> str:
        return text[: self.start] + text[self.end :]

    def put(self, text: str, words: Iterable[tuple[int, str]]) -> str:
        """Return a translation with the accelerator before the same letter, at a word's start if
        possible.

        words: the texts between the placeholders, and their places.
        """
        if _WITHOUT_ALPHABET.search(text):
            end = len(_ENDING.sub("", text))
            return f"{text[:end]}({self.mark}{self.letter.upper()}){text[end:]}"
        letter = re.escape(self.letter)
        places = [*words]
        for pattern in (rf"\b{letter}", letter, r"[^\W_]"):
            for start, word in places:
                if found := re.search(pattern, word, re.IGNORECASE):
                    place = start + found.start()
                    return text[:place] + self.mark + text[place:]
        return text


def accelerator_of(words: Iterable[tuple[int, str]]) -> Accelerator | None:
    """Return the accelerator of a text; None if there is none or more than one.

    words: the texts between the placeholders, and their places.
    """
    found = [each for start, word in words for each in _accelerators(start, word)]
    return found[0] if len(found) == 1 else None


def _accelerators(start: int, text: str) -> Iterable[Accelerator]:
    if behind := _BEHIND.search(text):
        yield Accelerator(behind[1], behind[2], start + behind.start(), start + behind.end())
        return
    names = [each.span() for each in _SHORT_NAME.finditer(text)]
    for pattern in _MARKS:
        for found in pattern.finditer(text):
            place = found.start()
            if not any(begin <= place < end for begin, end in names):
                letter = text[found.end()]
                yield Accelerator(found.group(), letter, start + place, start + found.end())
