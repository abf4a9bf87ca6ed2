"""Writes a translation's words with the marks that were placed among them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.text.markup.tree import Mark

_CLOSING = frozenset(".,;:!?…)]}»”’")


@dataclass(frozen=True, slots=True)
class Written:
    """Holds a translation in words, as they are to be written.

    gaps: what stands before, between and after the words; one more.
    """

    words: tuple[str, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tag:
    """A mark, or one end of it.

    hugs: it belongs to the word before it.
    needs_space_before, needs_space_after: it is a sign that a space parts from words.
    """

    raw: str
    hugs: bool
    is_line_break: bool = False
    needs_space_before: bool = False
    needs_space_after: bool = False


def write(root: Mark, text: Written) -> str:
    """Return the text with all marks in the root; spaces are on the outer side of tags."""
    parts: list[str] = []
    tags: list[_Tag] = []
    number = 0
    for item in _sequence(root):
        if isinstance(item, _Tag):
            tags.append(item)
        else:
            parts += _between(tags, text, number)
            parts.append(text.words[number])
            tags, number = [], number + 1
    parts += _between(tags, text, number)
    return "".join(parts)


def _between(tags: Sequence[_Tag], text: Written, number: int) -> Iterator[str]:
    """Yield the tags before a word, with the gap after the last that belongs to the word before
    them; a line break stands instead of it.
    """
    gap = text.gaps[number]
    if any(tag.is_line_break for tag in tags):
        gap = gap.strip()
    last = max((place + 1 for place, tag in enumerate(tags) if tag.hugs), default=0)
    yield from (tag.raw for tag in tags[:last])
    is_parted = bool(gap) or number == 0
    yield gap
    is_before_word = number < len(text.words) and text.words[number] not in _CLOSING
    for tag in tags[last:]:
        space_before = " " * (tag.needs_space_before and not is_parted)
        space_after = " " * (tag.needs_space_after and is_before_word)
        yield space_before + tag.raw + space_after
        is_parted = bool(space_after)


def _sequence(root: Mark) -> Iterator[_Tag | int]:
    """Yield tags, and words by their numbers, as they follow each other."""
    word = 0
    waiting: list[tuple[Mark, Iterator[Mark]]] = []
    mark, inner = root, iter(root.inner)
    while True:
        child = next(inner, None)
        end = mark.high if child is None else child.low
        yield from range(word, end)
        word = max(word, end)
        if child is not None:
            yield from _before(child)
            waiting.append((mark, inner))
            mark, inner = child, iter(child.inner)
        elif waiting:
            if mark.after:
                yield _Tag(mark.after, mark.after_hugs)
            mark, inner = waiting.pop()
        else:
            return


def _before(mark: Mark) -> Iterator[_Tag]:
    if mark.before:
        follows_space = mark.follows_space and not mark.before.startswith("<")
        yield _Tag(mark.before, mark.before_hugs, mark.is_line_break, follows_space, mark.is_apart)
