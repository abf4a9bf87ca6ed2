"""Reads the tags of a segment as pairs around its words and points between them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from serving.text.markup.model_placeholders import STAND_IN
from serving.text.markup.tokens import Role, Token, is_range_name, written

_CLOSING = frozenset(".,;:!?…)]}»”’")


@dataclass(slots=True, eq=False)
class Mark:
    """A pair of tags, or what else stands at one point, and all marks within.

    before, after: how it is written, at both ends; `after` is empty at a point.
    start, end: the source's words that it is around, or stands between.
    begins_earlier, ends_later: the tag stands in another segment, so that this end is the
        segment's own.
    before_hugs, after_hugs: what is written belongs to the word before it: a space comes after.
    follows_space: a space stands before it.
    is_apart: a space stands before it, and no word right after it.
    is_line_break: it stands instead of a space.
    low, high: the target's words that it is around, once it is placed.
    range_end: the point at the other end of the same words; tags that cross others are two points.
    """

    name: str
    before: str
    start: int
    end: int = 0
    after: str = ""
    begins_earlier: bool = False
    ends_later: bool = False
    before_hugs: bool = False
    after_hugs: bool = True
    follows_space: bool = False
    is_apart: bool = False
    is_line_break: bool = False
    inner: list["Mark"] = field(default_factory=list)
    low: int = 0
    high: int = 0
    range_end: "Mark | None" = None

    @property
    def is_point(self) -> bool:
        return self.start == self.end


def mark_tree(tokens: Sequence[Token], num_words_before: Sequence[int]) -> Mark:
    """Return a mark around all of the segment, with its marks in it.

    num_words_before: of each token, how many of the source's words end before it begins.
    """
    num_words = num_words_before[-1] if tokens else 0
    builder = _Builder(tokens)
    for number, token in enumerate(tokens):
        builder.add(number, token, num_words_before[number])
    return builder.tree(num_words)


class _Builder:
    """Goes through the tokens once, with the tags that are open."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._root = Mark("", "", 0)
        self._open = [self._root]
        self._first = [0]  # the token that opens each
        self._empty: list[list[tuple[Mark, int, int]]] = [[]]  # pairs without words in each
        self._num_open: Counter[str] = Counter()
        self._range_starts: dict[str, Mark] = {}
        self._space_before = _follows_space(tokens, -1)
        self._space_after = _follows_space(tokens[::-1], 0)[::-1]
        self._word_follows = _word_follows(tokens)

    def add(self, number: int, token: Token, word: int) -> None:
        if token.role is Role.OPEN:
            mark = Mark(token.name, token.raw, word)
            mark.follows_space = self._space_before[number]
            mark.before_hugs = self._space_after[number] and not mark.follows_space
            self._open.append(mark)
            self._first.append(number)
            self._empty.append([])
            self._num_open[mark.name] += 1
        elif token.role is Role.CLOSE:
            self._close(number, token, word)
        elif token.role is Role.POINT:
            point = self._put_point(number, token, word)
            if token.name in self._range_starts:
                self._end_range(point, token.name)
            elif is_range_name(token.name):
                self._range_starts[token.name] = point
        elif token.role is Role.LINE_BREAK:
            self._open[-1].inner.append(Mark("", token.raw, word, word, is_line_break=True))

    def tree(self, num_words: int) -> Mark:
        """Return all marks; tags still open end in a later segment."""
        while len(self._open) > 1:
            self._open[-1].ends_later = True
            self._end(len(self._tokens), num_words)
        self._root.end = num_words
        self._write_empty(self._empty.pop())
        return self._root

    def _close(self, number: int, token: Token, word: int) -> None:
        if self._num_open[token.name]:
            self._dissolve_down_to(token.name)
            mark = self._open[-1]
            mark.after, mark.after_hugs = token.raw, self._closing_hugs(number)
            self._end(number + 1, word)
        elif token.name in self._range_starts:
            self._end_range(self._put_point(number, token, word), token.name)
        elif len(self._open) == 1 and word:
            earlier = Mark(token.name, "", 0, word, token.raw, begins_earlier=True)
            earlier.after_hugs = self._closing_hugs(number)
            earlier.inner, self._root.inner = self._root.inner, [earlier]
        else:
            self._put_point(number, token, word)

    def _closing_hugs(self, number: int) -> bool:
        return self._space_after[number] or not self._space_before[number]

    def _end(self, next_token: int, word: int) -> None:
        mark, first, empty = self._pop()
        mark.end = word
        if mark.is_point:  # it is written with all that is in it
            mark = self._point("", word, first, next_token)
            self._empty[-1].append((mark, first, next_token))
        else:
            self._write_empty(empty)
        self._open[-1].inner.append(mark)

    def _write_empty(self, pairs: Iterable[tuple[Mark, int, int]]) -> None:
        """Write pairs without words as points. Those within others are left out: to write each
        would take the square of their depth.
        """
        for mark, first, next_token in pairs:
            mark.before = written(self._tokens[first:next_token])

    def _dissolve_down_to(self, name: str) -> None:
        """Take the tags that cross one of this name, and are in it, for points."""
        crossing = []
        while self._open[-1].name != name:
            mark, first, empty = self._pop()
            point = self._point(mark.before, mark.start, first, first + 1)
            self._range_starts[mark.name] = point
            crossing.append((point, mark.inner, empty))
        for point, inner, empty in reversed(crossing):
            self._open[-1].inner += [point, *inner]
            self._empty[-1] += empty

    def _end_range(self, point: Mark, name: str) -> None:
        self._range_starts.pop(name).range_end = point

    def _pop(self) -> tuple[Mark, int, list[tuple[Mark, int, int]]]:
        mark = self._open.pop()
        self._num_open[mark.name] -= 1
        return mark, self._first.pop(), self._empty.pop()

    def _put_point(self, number: int, token: Token, word: int) -> Mark:
        point = self._point(token.raw, word, number, number + 1)
        self._open[-1].inner.append(point)
        return point

    def _point(self, raw: str, word: int, first: int, following: int) -> Mark:
        point = Mark("", raw, word, word)
        point.follows_space = self._space_before[first]
        point.before_hugs = not point.follows_space
        is_before_word = self._word_follows[following] and not self._space_after[following - 1]
        point.is_apart = point.follows_space and not is_before_word
        return point


def _word_follows(tokens: Sequence[Token]) -> list[bool]:
    """Say of each token if the first text from it on begins with a word; and of the end."""
    is_word, found = False, [False]
    for token in reversed(tokens):
        if token.text:
            is_word = token.text[0].isalnum() or token.text.startswith(STAND_IN[0])
        found.append(is_word)
    return found[::-1]


def _follows_space(tokens: Sequence[Token], end: int) -> list[bool]:
    """Say of each token if the last text before it has a space at that end."""
    is_space, found = False, []
    for token in tokens:
        found.append(is_space)
        if token.role is Role.LINE_BREAK:
            is_space = True
        elif token.role in (Role.TEXT, Role.KEPT, Role.NUMBER):
            is_space = (token.raw or token.text)[end].isspace()
        elif token.text:  # a sign that a model reads
            is_space = False
    return found


@dataclass(frozen=True, slots=True)
class Written:
    """A translation in words, as they are to be written.

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
        is_parted = bool(space_after) or (is_parted and tag.raw.startswith("<"))


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
