"""Keeps words whole that have tags or invisible characters in them: H<sub>2</sub>O,
super<wbr>market.

A formula, a unit or the like with tags in it is not translated. A number after a word, as of a
note, is a point. Other words are read whole, and their tags go where the word alignment says.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, takewhile

from serving.text.markup.tokens import Role, Token, join_raw, join_text, split_at, with_spans
from serving.text.spans import Span

# Soft hyphens, and what says where a line may or must not be broken; in scripts without spaces a
# zero-width space separates words.
_INVISIBLE = re.compile(
    r"[\u00AD\u180E\u2060-\u2064\uFEFF]+|(?<![\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF])\u200B+"
    r"(?![\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF])"
)
_ALPHABETIC = r"[A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u024F\u0370-\u052F]"
# Characters without a width between letters, which may stand where a space should.
_BETWEEN_LETTERS = re.compile(
    rf"(?<!{_ALPHABETIC})({_ALPHABETIC}++)([\u180E\u200B-\u200F\u2060-\u2064\uFEFF]+)(?=({_ALPHABETIC}+))"
)
_ZERO_WIDTH_SPACE = "\u200b"
_LETTER = r"[^\W_\u0E00-\u0EFF\u1000-\u109F\u1780-\u17FF\u3040-\u30FF\u3400-\u9FFF]"
_WORD = re.compile(rf"{_LETTER}+(?:[-−+.'’/]?{_LETTER}+)*[-−+]*")
_TAG = "\0"  # in the place of a tag
_MAY_BREAK_TAG = "wbr"
_SHIFTING_TAGS = frozenset({"sub", "sup"})
_NOTE = re.compile(r"\d{1,3}(?:[,.-]\d{1,3})*")
_SHORTEST_WORD = 3  # letters; units are shorter, and have no notes
_SHORTEST_WORD_BESIDE = 4  # letters; a shorter word after a number may be its unit
_MOST_TOKENS = 50  # of a word with its tags; more are no word
_SYMBOLS = frozenset(
    ["mol", "rad", "bar", "sin", "cos", "tan", "log", "lim", "exp", "max", "min", "avg"]
)
_LONGEST_SYMBOL = 5  # letters, as of a symbol such as x<sub>max</sub>


def with_whole_words(tokens: Iterable[Token], num_tokens: Callable[[str], int]) -> Iterator[Token]:
    """Yield the tokens; a formula or the like with tags in it is one non-translatable token.

    num_tokens: how many tokens a model reads a text as.
    """
    for is_text, group in groupby(tokens, key=_may_be_in_text):
        if is_text:
            yield from _with_whole_words([*_without_invisible(group, num_tokens)])
        else:
            yield from group


def _may_be_in_text(token: Token) -> bool:
    return token.role in (Role.TEXT, Role.OPEN, Role.CLOSE, Role.POINT)


def _without_invisible(
    tokens: Iterable[Token], num_tokens: Callable[[str], int]
) -> Iterator[Token]:
    """Yield the tokens; characters that only say where a word may be broken are not read, those
    that separate words are read as a space.
    """
    for token in _with_separated_words([*tokens], num_tokens):
        if token.role is not Role.TEXT or not _INVISIBLE.search(token.text):
            yield token
        elif not token.is_divisible:
            yield Token(Role.TEXT, token.raw, _INVISIBLE.sub("", token.text))
        else:
            for is_read, part in _parts(token.text):
                yield Token(Role.TEXT, part, part if is_read else "")


def _with_separated_words(
    tokens: Sequence[Token], num_tokens: Callable[[str], int]
) -> Iterator[Token]:
    """Yield the tokens, a character without a width between two words as a space."""
    spaces = {
        Span(*match.span(2))
        for match in _BETWEEN_LETTERS.finditer(join_text(tokens))
        if _are_two_words(match, num_tokens)
    }
    borders = sorted(border for space in spaces for border in space)
    for token, span in with_spans(split_at(tokens, borders)):
        yield Token(Role.TEXT, token.raw, " ") if span in spaces else token


def _are_two_words(match: re.Match[str], num_tokens: Callable[[str], int]) -> bool:
    """Return whether letters around a character without a width are two words: if a model's
    tokenizer needs fewer tokens so, as for "dog" and "runs", but not for "gar" and "den". As many
    are enough where the character cannot say that a line may be broken within a word.
    """
    num_separate, num_joined = num_tokens(f"{match[1]} {match[3]}"), num_tokens(match[1] + match[3])
    may_be_broken = _ZERO_WIDTH_SPACE in match[2]
    return num_separate < num_joined + (not may_be_broken)


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the parts of a text, and whether a model reads them."""
    start = 0
    for match in _INVISIBLE.finditer(text):
        if match.start() > start:
            yield True, text[start : match.start()]
        yield False, match.group()
        start = match.end()
    if start < len(text):
        yield True, text[start:]


def _with_whole_words(tokens: Sequence[Token]) -> Iterator[Token]:
    marks = [span.start for token, span in with_spans(tokens) if token.role is not Role.TEXT]
    words = [match.span() for match in _WORD.finditer(join_text(tokens))] if marks else []
    words = [
        (start, end) for start, end in words if bisect_right(marks, start) < bisect_left(marks, end)
    ]
    if not words:
        yield from tokens
        return
    pieces = [*with_spans(split_at(tokens, [border for word in words for border in word]))]
    parts = [token for token, _ in pieces]
    with_text = [number for number, token in enumerate(parts) if token.text]
    starts = [pieces[number][1].start for number in with_text]
    done = 0
    for start, end in words:
        low, high = bisect_left(starts, start), bisect_left(starts, end)
        if starts[low : low + 1] != [start] or pieces[with_text[high - 1]][1].end != end:
            continue  # its border is within a token that cannot be split
        first, stop = with_text[low], with_text[high - 1] + 1
        if done <= first and stop - first <= _MOST_TOKENS:
            first, stop = _with_own_tags(parts, first, stop)
            yield from parts[done:first]
            yield from _word(parts[first:stop])
            done = stop
    yield from parts[done:]


def _with_own_tags(tokens: Sequence[Token], start: int, stop: int) -> tuple[int, int]:
    """Return the span of a word together with tags beside it whose other end is in it."""
    while stop - start <= _MOST_TOKENS and (lone := _lone_tags(tokens[start:stop])):
        first, last = tokens[start + lone[0]], tokens[start + lone[-1]]
        if start and _are_pair(tokens[start - 1], first):
            start -= 1
        elif stop < len(tokens) and _are_pair(last, tokens[stop]):
            stop += 1
        else:
            break
    return start, stop


def _lone_tags(tokens: Sequence[Token]) -> list[int]:
    """Return which tokens are tags without their other end."""
    lone: list[int] = []
    for number, token in enumerate(tokens):
        if token.role is Role.CLOSE:
            opened = [opening for opening in lone if _are_pair(tokens[opening], token)]
            lone = [opening for opening in lone if opening not in opened[-1:]]
            lone += [] if opened else [number]
        elif token.role is Role.OPEN:
            lone.append(number)
    return lone


def _are_pair(first: Token, last: Token) -> bool:
    return first.role is Role.OPEN and last.role is Role.CLOSE and first.name == last.name


def _word(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of one word, with its tags, as they are translated."""
    head = [*takewhile(lambda token: token.role is Role.TEXT, tokens)]
    tail = tokens[len(head) :]
    if head and _is_note(join_text(head), tail):
        yield from head
        yield Token(Role.POINT, join_raw(tail))
    elif _is_number_and_word(tokens):
        yield from _with_space_at_mark(tokens)
    elif _is_symbol(join_text(tokens), tokens) and not (
        _lone_tags(tokens) or _has_own_words(tokens)
    ):
        yield Token(Role.NON_TRANSLATABLE, join_raw(tokens), join_text(tokens))
    else:  # where a word may be broken says nothing of its translation
        yield from sorted(tokens, key=lambda token: token.name == _MAY_BREAK_TAG)


def _is_note(head: str, tail: Sequence[Token]) -> bool:
    """Return whether a word's end is the number of a note."""
    text = join_text(tail)
    is_number = _NOTE.fullmatch(text) is not None or (len(text) == 1 and _is_shifted(tail))
    is_whole = tail[0].role is Role.OPEN and not _lone_tags(tail)
    is_word = head.isalpha() and not head[1:].isupper() and head not in _SYMBOLS
    return is_number and is_whole and is_word and len(head) >= _SHORTEST_WORD


def _is_number_and_word(tokens: Sequence[Token]) -> bool:
    """Return whether it is a number and a word with only a tag between them, as in pages whose
    spaces are made by styles: <b>3</b>comments.
    """
    texts = sorted(token.text for token in tokens if token.text)
    is_pair = len(texts) == 2 and texts[0].isdecimal() and texts[1].isalpha()
    return is_pair and len(texts[1]) >= _SHORTEST_WORD_BESIDE and not _is_shifted(tokens)


def _has_own_words(tokens: Iterable[Token]) -> bool:
    """Return whether its parts between hyphens are whole, one of them a word: 1-<i>London</i>."""
    text = "".join(token.text or _TAG for token in tokens)
    parts = [part.strip(_TAG) for part in re.split(r"[-−]", text)]
    has_word = any(len(part) >= _SHORTEST_WORD_BESIDE and part[1:].islower() for part in parts)
    return has_word and not any(_TAG in part for part in parts)


def _with_space_at_mark(tokens: Sequence[Token]) -> Iterator[Token]:
    first = next(number for number, token in enumerate(tokens) if token.text)
    yield from tokens[: first + 1]
    following = tokens[first + 1 :]
    num_closing = len([*takewhile(lambda token: token.role is Role.CLOSE, following)])
    yield from following[:num_closing]
    yield Token(Role.TEXT, "", " ")
    yield from following[num_closing:]


def _is_symbol(word: str, tokens: Sequence[Token]) -> bool:
    if not re.sub(r"[-'’./]", "", word).isalpha():
        return True
    head = next(token.text for token in tokens if token.text)
    is_short = len(word) <= _LONGEST_SYMBOL or len(head) < _SHORTEST_WORD
    return is_short and _is_shifted(tokens)


def _is_shifted(tokens: Iterable[Token]) -> bool:
    return any(token.name in _SHIFTING_TAGS for token in tokens)
