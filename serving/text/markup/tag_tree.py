"""Reads the tags of a segment as a tree of pairs around words and points between them, and writes
a translation with the tags of such a tree.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from serving.text.markup.model_placeholders import MODEL_PLACEHOLDER
from serving.text.markup.tokens import Role, Token, is_range_name, join_raw

_CLOSING = frozenset(".,;:!?…)]}»”’")


@dataclass(slots=True, eq=False)
class Tag:
    """A pair of tags around words, or a point between them: an empty tag, a sign, a line break.

    opening, closing: how its ends are written; `closing` is empty at a point.
    start, end: the source's words that it is around, [start, end); equal at a point.
    begins_earlier, ends_later: its opening or closing tag stands in another segment.
    opening_attaches, closing_attaches: that end belongs to the word before it, so that a space is
        written after it.
    follows_space: the source has a space before it.
    needs_space: the source has a space before it, and no word right after it.
    is_line_break: it stands instead of a space.
    inner: the tags within it.
    low, high: the target's words that it is around, [low, high), once it is placed.
    range_end: the point at the other end of the same words; a pair that crosses others is two
        points.
    """

    name: str
    opening: str
    start: int
    end: int = 0
    closing: str = ""
    begins_earlier: bool = False
    ends_later: bool = False
    opening_attaches: bool = False
    closing_attaches: bool = True
    follows_space: bool = False
    needs_space: bool = False
    is_line_break: bool = False
    inner: list["Tag"] = field(default_factory=list)
    low: int = 0
    high: int = 0
    range_end: "Tag | None" = None

    @property
    def is_point(self) -> bool:
        return self.start == self.end


def read_tag_tree(tokens: Sequence[Token], num_words_before: Sequence[int]) -> Tag:
    """Return a tag around all of the segment, with its tags in it.

    num_words_before: of each token, how many of the source's words end before it begins.
    """
    num_words = num_words_before[-1] if tokens else 0
    builder = _Builder(tokens)
    for number, token in enumerate(tokens):
        builder.add(number, token, num_words_before[number])
    return builder.tree(num_words)


class _Builder:
    """Builds the tree in one pass over the tokens, with a stack of the tags that are open."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens
        self._root = Tag("", "", 0)
        self._open = [self._root]
        self._first = [0]  # the token that opens each
        self._empty: list[list[tuple[Tag, int, int]]] = [[]]  # pairs without words in each
        self._num_open: Counter[str] = Counter()
        self._range_starts: dict[str, Tag] = {}
        self._space_before = _follows_space(tokens, -1)
        self._space_after = _follows_space(tokens[::-1], 0)[::-1]
        self._word_follows = _word_follows(tokens)

    def add(self, number: int, token: Token, word: int) -> None:
        if token.role is Role.OPEN:
            tag = Tag(token.name, token.raw, word)
            tag.follows_space = self._space_before[number]
            tag.opening_attaches = self._space_after[number] and not tag.follows_space
            self._open.append(tag)
            self._first.append(number)
            self._empty.append([])
            self._num_open[tag.name] += 1
        elif token.role is Role.CLOSE:
            self._close(number, token, word)
        elif token.role is Role.POINT:
            point = self._put_point(number, token, word)
            if token.name in self._range_starts:
                self._end_range(point, token.name)
            elif is_range_name(token.name):
                self._range_starts[token.name] = point
        elif token.role is Role.LINE_BREAK:
            self._open[-1].inner.append(Tag("", token.raw, word, word, is_line_break=True))

    def tree(self, num_words: int) -> Tag:
        """Return all tags; tags still open end in a later segment."""
        while len(self._open) > 1:
            self._open[-1].ends_later = True
            self._end(len(self._tokens), num_words)
        self._root.end = num_words
        self._write_empty(self._empty.pop())
        return self._root

    def _close(self, number: int, token: Token, word: int) -> None:
        if self._num_open[token.name]:
            self._dissolve_down_to(token.name)
            tag = self._open[-1]
            tag.closing, tag.closing_attaches = token.raw, self._closing_attaches(number)
            self._end(number + 1, word)
        elif token.name in self._range_starts:
            self._end_range(self._put_point(number, token, word), token.name)
        elif len(self._open) == 1 and word:
            earlier = Tag(token.name, "", 0, word, token.raw, begins_earlier=True)
            earlier.closing_attaches = self._closing_attaches(number)
            earlier.inner, self._root.inner = self._root.inner, [earlier]
        else:
            self._put_point(number, token, word)

    def _closing_attaches(self, number: int) -> bool:
        return self._space_after[number] or not self._space_before[number]

    def _end(self, next_token: int, word: int) -> None:
        tag, first, empty = self._pop()
        tag.end = word
        if tag.is_point:  # it is written with all that is in it
            tag = self._point("", word, first, next_token)
            self._empty[-1].append((tag, first, next_token))
        else:
            self._write_empty(empty)
        self._open[-1].inner.append(tag)

    def _write_empty(self, pairs: Iterable[tuple[Tag, int, int]]) -> None:
        """Write pairs without words as points. Those within others are left out: to write each
        would take the square of their depth.
        """
        for tag, first, next_token in pairs:
            tag.opening = join_raw(self._tokens[first:next_token])

    def _dissolve_down_to(self, name: str) -> None:
        """Take the tags that cross one of this name, and are in it, for points."""
        crossing = []
        while self._open[-1].name != name:
            tag, first, empty = self._pop()
            point = self._point(tag.opening, tag.start, first, first + 1)
            self._range_starts[tag.name] = point
            crossing.append((point, tag.inner, empty))
        for point, inner, empty in reversed(crossing):
            self._open[-1].inner += [point, *inner]
            self._empty[-1] += empty

    def _end_range(self, point: Tag, name: str) -> None:
        self._range_starts.pop(name).range_end = point

    def _pop(self) -> tuple[Tag, int, list[tuple[Tag, int, int]]]:
        tag = self._open.pop()
        self._num_open[tag.name] -= 1
        return tag, self._first.pop(), self._empty.pop()

    def _put_point(self, number: int, token: Token, word: int) -> Tag:
        point = self._point(token.raw, word, number, number + 1)
        self._open[-1].inner.append(point)
        return point

    def _point(self, raw: str, word: int, first: int, following: int) -> Tag:
        point = Tag("", raw, word, word)
        point.follows_space = self._space_before[first]
        point.opening_attaches = not point.follows_space
        is_before_word = self._word_follows[following] and not self._space_after[following - 1]
        point.needs_space = point.follows_space and not is_before_word
        return point


def _word_follows(tokens: Sequence[Token]) -> list[bool]:
    """Return of each token, and of the end, whether a word begins the first text from it on."""
    is_word, follows = False, [False]
    for token in reversed(tokens):
        if token.text:
            is_word = token.text[0].isalnum() or token.text.startswith(MODEL_PLACEHOLDER[0])
        follows.append(is_word)
    return follows[::-1]


def _follows_space(tokens: Sequence[Token], end: int) -> list[bool]:
    """Return of each token whether the last text before it has a space at that end: 0 or -1."""
    is_space, follows = False, []
    for token in tokens:
        follows.append(is_space)
        if token.role is Role.LINE_BREAK:
            is_space = True
        elif token.role in (Role.TEXT, Role.NON_TRANSLATABLE, Role.NUMBER):
            is_space = (token.raw or token.text)[end].isspace()
        elif token.text:  # a sign that a model reads
            is_space = False
    return follows


@dataclass(frozen=True, slots=True)
class TargetWords:
    """A translation in words, as they are to be written.

    gaps: what stands before, between and after the words; one more.
    """

    words: tuple[str, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _TagEnd:
    """One end of a pair of tags, or a point, as it is written.

    attaches: it belongs to the word before it.
    needs_space_before, needs_space_after: it is a sign, with spaces between it and words.
    """

    raw: str
    attaches: bool
    is_line_break: bool = False
    needs_space_before: bool = False
    needs_space_after: bool = False


def write_tags(root: Tag, text: TargetWords) -> str:
    """Return the text with all tags in the root; spaces are on the outer side of tags."""
    parts: list[str] = []
    tags: list[_TagEnd] = []
    number = 0
    for item in _tags_and_words(root):
        if isinstance(item, _TagEnd):
            tags.append(item)
        else:
            parts += _tags_before_word(tags, text, number)
            parts.append(text.words[number])
            tags, number = [], number + 1
    parts += _tags_before_word(tags, text, number)
    return "".join(parts)


def _tags_before_word(tags: Sequence[_TagEnd], text: TargetWords, number: int) -> Iterator[str]:
    """Yield the tags before a word, with the gap after the last that belongs to the word before
    them; a line break stands instead of it.
    """
    gap = text.gaps[number]
    if any(tag.is_line_break for tag in tags):
        gap = gap.strip()
    last = max((place + 1 for place, tag in enumerate(tags) if tag.attaches), default=0)
    yield from (tag.raw for tag in tags[:last])
    is_parted = bool(gap) or number == 0
    yield gap
    is_before_word = number < len(text.words) and text.words[number] not in _CLOSING
    for tag in tags[last:]:
        space_before = " " * (tag.needs_space_before and not is_parted)
        space_after = " " * (tag.needs_space_after and is_before_word)
        yield space_before + tag.raw + space_after
        is_parted = bool(space_after) or (is_parted and tag.raw.startswith("<"))


def _tags_and_words(root: Tag) -> Iterator[_TagEnd | int]:
    """Yield tags, and words by their numbers, as they follow each other."""
    word = 0
    waiting: list[tuple[Tag, Iterator[Tag]]] = []
    tag, inner = root, iter(root.inner)
    while True:
        child = next(inner, None)
        end = tag.high if child is None else child.low
        yield from range(word, end)
        word = max(word, end)
        if child is not None:
            yield from _opening_end(child)
            waiting.append((tag, inner))
            tag, inner = child, iter(child.inner)
        elif waiting:
            if tag.closing:
                yield _TagEnd(tag.closing, tag.closing_attaches)
            tag, inner = waiting.pop()
        else:
            return


def _opening_end(tag: Tag) -> Iterator[_TagEnd]:
    if tag.opening:
        follows_space = tag.follows_space and not tag.opening.startswith("<")
        yield _TagEnd(
            tag.opening, tag.opening_attaches, tag.is_line_break, follows_space, tag.needs_space
        )
