"""Finds non-translatable text with tags in it: `git <b>rebase</b>`, <i>a</i>@b.org.

It is searched in the text without tags, and becomes one token with its tags. Where only one tag of
a pair is within it, what signs enclose (code, braces) stays whole and the tag moves to its border;
anything else ends at the tag.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from serving.text.markup.tokens import (
    Role,
    Token,
    is_range_name,
    join_raw,
    join_text,
    split_at,
    with_spans,
)
from serving.text.spans import Span

# Yields what is not translated in a text, and the name of its pattern; of those that overlap the
# first counts.
Find = Callable[[str], Iterable[tuple[Span, str | None]]]
_ENDLESS = frozenset({"web", "path"})  # patterns to which any further letters belong
_MASK = "\ufffc"  # in the place of tokens that are not text


def with_tagged_spans(tokens: Iterable[Token], find: Find) -> Iterator[Token]:
    """Yield the tokens, each non-translatable part that has tags in it as one."""
    for separates_lines, group in groupby(tokens, key=_separates_lines):
        run = [*group]
        if separates_lines or all(token.role is Role.TEXT for token in run):
            yield from run
        else:
            yield from _with_tagged_spans(run, find)


def _separates_lines(token: Token) -> bool:
    return token.role in (Role.BREAK, Role.LINE_BREAK)


def _with_tagged_spans(run: Sequence[Token], find: Find) -> Iterator[Token]:
    spans = _spans_with_marks(run, find)
    pieces = [*with_spans(split_at(run, [border for span, _ in spans for border in span]))]
    tokens = [token for token, _ in pieces]
    with_text = [number for number, token in enumerate(tokens) if token.text]
    starts = [pieces[number][1].start for number in with_text]
    done = 0
    for span, kind in spans:
        low, high = bisect_left(starts, span.start), bisect_left(starts, span.end)
        if starts[low : low + 1] != [span.start] or pieces[with_text[high - 1]][1].end != span.end:
            continue  # its border is within a token that cannot be split
        first, stop = with_text[low], with_text[high - 1] + 1
        if first < done:
            continue
        start, stop, lone = _with_own_tags(tokens, first, stop, done)
        part = tokens[start:stop]
        if not _is_enclosed(join_text(part)) and (lone or _are_several(part, kind, find)):
            continue
        yield from tokens[done:start]
        yield from _merge_part(part, [number - start for number in lone])
        done = stop
    yield from tokens[done:]


def _spans_with_marks(run: Sequence[Token], find: Find) -> list[tuple[Span, str | None]]:
    """Return what is not translated and has tags in it, in order; none overlaps another."""
    text = "".join(
        token.text if token.role is Role.TEXT else _MASK * len(token.text) for token in run
    )
    marks = [span.start for token, span in with_spans(run) if token.role is not Role.TEXT]
    is_used = bytearray(len(text))
    spans = []
    for span, kind in find(text):
        if span.start < span.end and not any(is_used[span.start : span.end]):
            is_used[span.start : span.end] = b"x" * (span.end - span.start)
            if bisect_right(marks, span.start) < bisect_left(marks, span.end):
                spans.append((span, kind))
    return sorted(spans, key=lambda span_and_kind: span_and_kind[0])


def _with_own_tags(
    tokens: Sequence[Token], start: int, stop: int, least: int
) -> tuple[int, int, list[int]]:
    """Return where a part lies together with tags beside it whose other end is in it, and which of
    its tags have their other end elsewhere.

    least: the first token that it may begin with.
    """
    lone = deque(number + start for number in _lone_tags(tokens[start:stop]))
    while lone:
        if start > least and _are_pair(tokens[start - 1], tokens[lone[0]]):
            start -= 1
            lone.popleft()
        elif stop < len(tokens) and _are_pair(tokens[lone[-1]], tokens[stop]):
            stop += 1
            lone.pop()
        else:
            break
    return start, stop, [*lone]


def _lone_tags(tokens: Iterable[Token]) -> list[int]:
    """Return which tokens are tags, or ends of ranges, without their other end."""
    lone: list[int] = []
    opened: defaultdict[str, list[int]] = defaultdict(list)
    for number, token in enumerate(tokens):
        is_range = token.role is Role.POINT and is_range_name(token.name)
        if (token.role is Role.CLOSE or is_range) and opened[token.name]:
            opened[token.name].pop()
        elif token.role is Role.OPEN or is_range:
            opened[token.name].append(number)
        elif token.role is Role.CLOSE:
            lone.append(number)
    return sorted([*lone, *(number for numbers in opened.values() for number in numbers)])


def _are_pair(first: Token, last: Token) -> bool:
    return first.role is Role.OPEN and last.role is Role.CLOSE and first.name == last.name


def _is_enclosed(text: str) -> bool:
    """Return whether a part begins and ends with signs, as `code` and {name} do."""
    return not (text[0].isalnum() or text[-1].isalnum())


def _are_several(part: Sequence[Token], kind: str | None, find: Find) -> bool:
    """Return whether a part without signs around it is several that only tags part: elements side
    by side, or one that is of this kind alone and a word beside it.
    """
    roles = [token.role for token in part if token.text or token.role is not Role.TEXT]
    if any(pair == (Role.CLOSE, Role.OPEN) for pair in pairwise(roles)):
        return True
    texts = [join_text(group) for is_text, group in groupby(part, key=_is_text) if is_text]
    if len(texts) < 2:  # an address and code beside it, which no tag parts
        return False
    first, *_, last = texts
    without_first, without_last = "".join(texts[1:]), "".join(texts[:-1])
    if first.isalpha() and (Span(0, len(without_first)), kind) in find(without_first):
        return True
    ends_before = kind not in _ENDLESS and without_last[-1:].isalnum() and last.isalpha()
    return ends_before and (Span(0, len(without_last)), kind) in find(without_last)


def _is_text(token: Token) -> bool:
    return token.role is Role.TEXT


def _merge_part(part: Sequence[Token], lone: Sequence[int]) -> Iterator[Token]:
    """Yield a part as one non-translatable token, and beside it the tags whose other end is
    elsewhere: after it if all of them are closing tags, else before it, so that pairs nest as they
    did.
    """
    moved = [part[number] for number in lone]
    numbers = frozenset(lone)
    whole = [token for number, token in enumerate(part) if number not in numbers]
    follow = all(token.role is Role.CLOSE for token in moved)
    if not follow:
        yield from moved
    yield Token(Role.NON_TRANSLATABLE, join_raw(whole), join_text(whole))
    if follow:
        yield from moved
