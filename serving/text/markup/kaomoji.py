"""Finds faces made of signs, as ¯\\_(ツ)_/¯, (╯°□°)╯︵ ┻━┻ and ( ͡° ͜ʖ ͡°).

A run of signs is a face if no two of its letters belong to a word.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.text.spans import Span

_CHUNK = re.compile(r"\S+")
_HAS_WORD_OR_FIGURE = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]{2}|[0-9]")
_LATIN = re.compile(r"[A-Za-zÀ-ÖØ-öø-ɏ]")
_PUNCTUATION = frozenset(
    ".,:;!?'\"“”„‘’«»‹›…‒–—―()[]{}<>=+*/&%$€£¥@#-¡¿·§¶©®™、。，！？：；「」『』（）‥〜‐‑"
)
_BALANCE = {**dict.fromkeys("(（༼", 1), **dict.fromkeys(")）༽", -1)}
_PICTURE = re.compile("[\\U0001F000-\\U0001FAFF\\uFE0E\\uFE0F\\u200d]")
_LAST_MARKS = re.compile(r"[.,;:!?…\"'”’»]+$")
# A face of ASCII alone has round brackets, with eyes that are alike, or signs, at both
# ends.
_ASCII_FACE = re.compile(
    r"[\\<m]?\((?:([oOTQUuVvXxn])[_.^~-]+\1|[oO][_.][oO]"
    r"|(?=[^()]*[_^~=><*])[^\w\s()]?[\^_~=><*;.@'-][^\w\s()]*[ovwOVW_^.~-]?[^\s()]{0,3}"
    r"[\^_~=><*;.@'-]|[_^] [_^])\)[/>m]?"
)
_LONGEST = 40  # characters of a chunk
_MOST_CHUNKS = 5  # of one face


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Characters without a space between, without the marks that end them.

    num_letters: that belong to no word.
    balance: how many more brackets it opens than it closes.
    is_last: marks follow that end a sentence or a part of it, and a face.
    """

    span: Span
    num_signs: int
    num_letters: int
    balance: int
    is_last: bool


def find_kaomoji(text: str) -> Iterator[Span]:
    """Yield the faces; those side by side are one."""
    waiting: list[_Chunk] = []
    start = end = 0
    for match in _CHUNK.finditer(text):
        chunk = _chunk(match)
        if chunk is None:
            waiting = []
            continue
        waiting = [*waiting, chunk] if waiting and not waiting[-1].is_last else [chunk]
        waiting = waiting[-_MOST_CHUNKS:]
        if waiting[-1].balance <= 0 and (face := _face(text, waiting)):
            if start < end and not text[end : face.start].strip() and face.start - end <= 1:
                end = face.end
            else:
                if start < end:
                    yield Span(start, end)
                start, end = face
            waiting = []
    if start < end:
        yield Span(start, end)


def _chunk(match: re.Match[str]) -> _Chunk | None:
    """Return None for what has letters of a word, or figures."""
    text = match.group()
    if len(text) > _LONGEST or _HAS_WORD_OR_FIGURE.search(text):
        return None
    marks = _LAST_MARKS.search(text) if len(text) > 1 else None
    if marks and marks.start():
        text = text[: marks.start()]
    num_signs = num_letters = balance = 0
    follows_letter = False
    for character in _PICTURE.sub("", text):
        category = unicodedata.category(character)
        balance += _BALANCE.get(character, 0)
        if category[0] == "M":
            num_signs += not follows_letter
            continue
        follows_letter = category[0] == "L"
        if follows_letter:
            num_letters += _LATIN.match(character) is None
        elif category[0] != "C" and character not in _PUNCTUATION:
            num_signs += 1
    span = Span(match.start(), match.start() + len(text))
    return _Chunk(span, num_signs, num_letters, balance, marks is not None)


def _face(text: str, chunks: Sequence[_Chunk]) -> Span | None:
    """Return where the face lies that the last of some chunks ends."""
    if any(chunk.balance > 0 for chunk in chunks) and chunks[-1].balance == 0:
        return None  # it may go on up to the bracket that closes it
    for first in range(len(chunks) - 1, -1, -1):
        part = chunks[first:]
        span = Span(part[0].span.start, part[-1].span.end)
        if sum(chunk.balance for chunk in part):
            continue
        face = text[span.start : span.end]
        num_signs = sum(chunk.num_signs for chunk in part) + bool(len(part) > 1)
        num_letters = sum(chunk.num_letters for chunk in part)
        if face.isascii():
            if _ASCII_FACE.fullmatch(face):
                return span
        elif num_signs and num_signs + num_letters > 1 and (len(part) == 1 or part[0].balance):
            return span
    return None
