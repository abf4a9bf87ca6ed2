"""Writes a translation's words with the marks that were placed among them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from serving.text.markup.tree import Mark


@dataclass(frozen=True, slots=True)
class Written:
    """Holds a translation in words, as they are to be written.

    gaps: what stands before, between and after the words; one more.
    """

    words: tuple[str, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Tag:
    raw: str
    hugs: bool  # the word before it
    is_line_break: bool = False


def write(root: Mark, text: Written) -> str:
    """Return the text with all marks in the root; spaces are on the outer side of tags."""
    parts: list[str] = []
    tags: list[_Tag] = []
    number = 0
    for item in _sequence(root):
        if isinstance(item, _Tag):
            tags.append(item)
        else:
            parts += _between(tags, text.gaps[number])
            parts.append(text.words[number])
            tags, number = [], number + 1
    parts += _between(tags, text.gaps[number])
    return "".join(parts)


def _between(tags: Sequence[_Tag], gap: str) -> Iterator[str]:
    """Yield the tags between two words, with the gap after the last that belongs to the first; a
    line break stands instead of it.
    """
    if any(tag.is_line_break for tag in tags):
        gap = gap.strip()
    last = max((number + 1 for number, tag in enumerate(tags) if tag.hugs), default=0)
    yield from (tag.raw for tag in tags[:last])
    yield gap
    yield from (tag.raw for tag in tags[last:])


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
        yield _Tag(mark.before + " " * mark.is_apart, mark.before_hugs, mark.is_line_break)
