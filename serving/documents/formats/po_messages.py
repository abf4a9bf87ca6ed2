"""Messages of programs: translations keep their placeholders and accelerators."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from serving.documents.fragment import Fragment, Single
from serving.documents.messages import MessageSyntax, split_message, word_mark
from serving.documents.spans import InlineMark, TextSpan
from serving.text.markup.accelerators import find_accelerators
from serving.text.markup.placeholders import ArgumentOrder, GettextFormat, gettext_formats

# Placeholders of the next argument: not `%%`, `%1$s`, `%(name)s`, `%m` or Qt's `%1`.
_ARGUMENT = re.compile(
    r"[A-Za-z]?%(?![\d*.]*\$|\d+\$|\(|\{|%|m|L?\d+$|[-+# 0]*<(?!PRI))"
    r"[^%]*(?:[a-zA-Z@]|<PRI\w+>)%{0,2}$"
)
_WIDTH_BY_ARGUMENT = re.compile(r"(?<!')\*")  # '* pads with stars, in PHP
_OF_DATES = re.compile(r"%[-_0^#]?[aAbBHIjmMpSUwWyYZ]$")
# In scripts without an alphabet the letter follows the text: (O).
_BEHIND = re.compile(r"[ \u3000]?\(([&_~])([A-Za-z\d])\)(?!\w)")
_WITHOUT_ALPHABET = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDING = re.compile(r"[\s.:…：。]*\Z")


class Message:
    """A message. flags: of its entry, such as `c-format`."""

    def __init__(self, source: str, flags: Iterable[str]) -> None:
        self.source = source
        self._messages = _messages(frozenset(flags))
        self._accelerator = find_accelerator(self._words(source))
        text = self._accelerator.remove_from(source) if self._accelerator else source
        self._pieces = [*split_message(text, self._messages)]
        self._order = _order(gettext_formats(flags), self._pieces)
        self._span = self._make_span(self._pieces)
        self.fragment: Fragment = self._span.fragment

    @property
    def placeholders(self) -> list[str]:
        pieces = split_message(self.source, self._messages)
        return sorted(piece.raw for piece in pieces if isinstance(piece, InlineMark))

    def apply_translation(self, translation: str) -> str:
        text = self._reorder_arguments(translation).apply_translation(translation)
        return self._accelerator.insert_into(text, self._words(text)) if self._accelerator else text

    def _reorder_arguments(self, translation: str) -> TextSpan:
        """Return a span in which each argument keeps its value if a translation reorders them."""
        items = self.fragment.restore_codes(translation)
        places = [item.number - 1 for item in items if isinstance(item, Single)]
        arguments = [place for place in places if _takes_an_argument(self._pieces[place])]
        in_order = sorted(arguments)
        if arguments == in_order or self._order is ArgumentOrder.FREE:
            return self._span
        pieces = [*self._pieces]
        raws = [piece.raw for place in in_order if isinstance(piece := pieces[place], InlineMark)]
        if self._order is ArgumentOrder.NUMBERED:
            raws, arguments = _number_arguments(raws), in_order
        for place, raw in zip(arguments, raws, strict=True):
            pieces[place] = word_mark(raw)
        return self._make_span(pieces)

    def _make_span(self, pieces: Sequence[str | InlineMark]) -> TextSpan:
        """Return a span that writes characters as its format does, if the source does too."""
        literals = {ord(literal): raw for raw, literal in self._messages.literals.items()}
        words = "".join(piece for piece in pieces if isinstance(piece, str))
        if any(character in words for character in self._messages.literals.values()):
            literals = {}
        return TextSpan(0, 0, pieces, lambda text: text.translate(literals))

    def _words(self, text: str) -> list[tuple[int, str]]:
        words: list[tuple[int, str]] = []
        place = 0
        for piece in split_message(text, self._messages):
            if isinstance(piece, str):
                words.append((place, piece))
            place += len(piece.raw if isinstance(piece, InlineMark) else piece)
        return words


@cache
def _messages(flags: frozenset[str]) -> MessageSyntax:
    return MessageSyntax(flags)


def _takes_an_argument(piece: str | InlineMark) -> bool:
    return isinstance(piece, InlineMark) and bool(_ARGUMENT.match(piece.raw))


def _order(formats: Sequence[GettextFormat], pieces: Iterable[str | InlineMark]) -> ArgumentOrder:
    if formats:
        return min((format.order for format in formats), key=[*ArgumentOrder].index)
    marks = (piece.raw for piece in pieces if isinstance(piece, InlineMark))
    return ArgumentOrder.FREE if any(map(_OF_DATES.match, marks)) else ArgumentOrder.OF_THE_SOURCE


def _number_arguments(arguments: Sequence[str]) -> list[str]:
    """Number arguments in their original order: `%s %*d` becomes `%1$s %3$*2$d`."""
    number = 0
    numbered: list[str] = []
    for raw in arguments:
        before, _, conversion = raw.partition("%")
        *widths, last = _WIDTH_BY_ARGUMENT.split(conversion)
        width_numbers = ""
        for width in widths:
            number += 1
            width_numbers += f"{width}*{number}$"
        number += 1
        numbered.append(f"{before}%{number}${width_numbers}{last}")
    return numbered


@dataclass(frozen=True)
class Accelerator:
    """A mark before the letter that opens a menu by keyboard, as in `&Open`, and its place."""

    mark: str
    letter: str
    start: int
    end: int

    def remove_from(self, text: str) -> str:
        return text[: self.start] + text[self.end :]

    def insert_into(self, text: str, words: Iterable[tuple[int, str]]) -> str:
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
                if match := re.search(pattern, word, re.IGNORECASE):
                    place = start + match.start()
                    return text[:place] + self.mark + text[place:]
        return text


def find_accelerator(words: Iterable[tuple[int, str]]) -> Accelerator | None:
    """Return the accelerator of a text; None if there is none or more than one.

    words: the texts between the placeholders, and their places.
    """
    accelerators = [
        accelerator for start, word in words for accelerator in _accelerators(start, word)
    ]
    return accelerators[0] if len(accelerators) == 1 else None


def _accelerators(start: int, text: str) -> Iterable[Accelerator]:
    if behind := _BEHIND.search(text):
        yield Accelerator(behind[1], behind[2], start + behind.start(), start + behind.end())
        return
    for place in (span.end - 1 for span in find_accelerators(text, is_label=True)):
        yield Accelerator(text[place], text[place + 1], start + place, start + place + 1)
