"""What a text with inline codes consists of: text, and codes by their numbers."""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

_WORD_END = re.compile(r"[^\s()\[\]{}\"“”«»,;:]*\Z")
_LONGEST_WORD = 100  # characters
_WORD_START = re.compile(r"[^\W_]*")
_SHIFTED = re.compile(r"\S{1,12}")
_MOST_UNIT_LETTERS = 2  # as in km²; after longer words it is a note mark
_ORDINAL_LETTERS = re.compile(r"[^\W\d_]{1,4}")


class Shift(Enum):
    """Whether text is above or below the line."""

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
    """A code without text, such as a picture.

    ends_sentence: sentences end here.
    is_line_break: sentences end here, unless the next line begins with a small letter.
    """

    number: int
    ends_sentence: bool = False
    is_line_break: bool = False


@dataclass(frozen=True, slots=True)
class Protected:
    """What stays in a translation as it is in the source: H₂O, m², a page number, a note mark.

    text: what the model reads as a word of the sentence; empty if it is not part of one.
    """

    number: int
    items: tuple["Item", ...]
    text: str


Item = str | Open | Close | Single | Protected


def protect_words(items: Iterable[Item]) -> list[Item]:
    """Return the items with formulas, units and note marks as items that stay as they are."""
    ahead = deque(items)
    result: list[Item] = []
    while ahead:
        if _is_shifted(ahead):
            result += _protect_shifted(result, [ahead.popleft() for _ in range(3)], ahead)
        else:
            result.append(ahead.popleft())
    return result


def _is_shifted(ahead: "deque[Item]") -> bool:
    """Return whether the next items are short text above or below the line."""
    if len(ahead) < 3 or not isinstance(first := ahead[0], Open) or first.shift is None:
        return False
    text = ahead[1]
    return (
        isinstance(text, str) and bool(_SHIFTED.fullmatch(text)) and ahead[2] == Close(first.number)
    )


def _protect_shifted(before: list[Item], shifted: list[Item], ahead: "deque[Item]") -> list[Item]:
    """Return the items for shifted text; its word is taken from both sides."""
    opened, text, _ = shifted
    assert isinstance(opened, Open) and isinstance(text, str)
    stem = _last_word(before)
    is_raised = opened.shift is Shift.SUPERSCRIPT
    if is_raised and stem[-1:].isdigit() and _ORDINAL_LETTERS.fullmatch(text):
        return [text]  # 13th: other languages have other letters
    if stem and (not is_raised or _is_compact(stem, text)):
        items = (*_take_end(before, stem), *shifted, *_take_rest(ahead))
        return [Protected(opened.number, items, _join_text(items))]
    if stem or not any(map(str.isalpha, text)):
        return [Protected(opened.number, tuple(shifted), "")]
    return shifted


def _last_word(items: Sequence[Item]) -> str:
    last = items[-1] if items else ""
    # From near the end: from the start it would try each character of a long word.
    start = max(len(last) - _LONGEST_WORD, 0) if isinstance(last, str) else 0
    match = _WORD_END.search(last, start) if isinstance(last, str) else None
    return match.group() if match else ""


def _is_compact(stem: str, raised: str) -> bool:
    """Return whether a word is a symbol such as km, 10, CO or mc."""
    letters = sum(map(str.isalpha, stem))
    has_form = letters <= _MOST_UNIT_LETTERS or any(map(str.isdigit, stem)) or stem[1:].isupper()
    return stem[-1].isalnum() and (has_form or raised[0] in "+-−–")


def _take_end(items: list[Item], stem: str) -> list[Item]:
    last = items.pop()
    assert isinstance(last, str)
    if rest := last[: len(last) - len(stem)]:
        items.append(rest)
    return [stem]


def _take_rest(ahead: "deque[Item]") -> list[Item]:
    """Take the rest of the word, which may have shifted text again."""
    word: list[Item] = []
    while ahead:
        if _is_shifted(ahead):
            word += [ahead.popleft() for _ in range(3)]
            continue
        text = ahead[0]
        match = _WORD_START.match(text) if isinstance(text, str) else None
        if match is None or not match.group() or not isinstance(text, str):
            break
        word.append(match.group())
        ahead.popleft()
        if rest := text[match.end() :]:
            ahead.appendleft(rest)
            break
    return word


def _join_text(items: Iterable[Item]) -> str:
    return "".join(item for item in items if isinstance(item, str))
