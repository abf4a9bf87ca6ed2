"""Finds accelerators, the marks before the letter that opens a menu by the keyboard: `&Open`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_MARKS = (
    re.compile(r"(?<!&)&(?=[^\W_])(?!\w+;|\w*=)"),
    # `user_id` and `MAX_SIZE` are names; `E_xit` is none.
    re.compile(r"(?:(?<![^\s(\[])|(?<=\b[A-Z])|(?<=\b[A-Z][a-z])|(?<=\b[A-Z][a-z]{2}))_(?=[^\W_])"),
    re.compile(r"(?<![^\s(\[])~(?=[^\W\d_])|(?<=\b[^\W\d_])~(?=[^\W\d_])"),
)
_SHORT_NAME = re.compile(r"\b[A-Z]{1,3}&[A-Z]{1,3}\b")  # AT&T
# Where letters are none of the keyboard's: a letter of its own, behind the text.
_BEHIND = re.compile(r"\(([&_~])([A-Za-z\d])\)")
_WITHOUT_ALPHABET = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_ENDING = re.compile(r"[\s.:…：。]*\Z")


@dataclass(frozen=True)
class Accelerator:
    """Holds an accelerator, and where it stands in its text."""

    mark: str
    letter: str
    start: int
    end: int

    def removed(self, text: str) -> str:
        return text[: self.start] + text[self.end :]

    def put(self, text: str, words: Iterable[tuple[int, str]]) -> str:
        """Put it before the same letter of a translation, at a word's start if there is one.

        words: what is no placeholder of the translation, and where it is.
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
    """Return the one accelerator of a text, if it has one and no more.

    words: what is no placeholder of it, and where it is.
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
