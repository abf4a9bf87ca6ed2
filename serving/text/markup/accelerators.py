"""Finds accelerators: signs before the letter that opens a menu by keyboard, as in `&Open`."""

import re
from collections.abc import Iterator, Sequence

from serving.text.markup.tokens import Role, Token, join_text, split_at, with_spans

_IN_LABELS = (
    re.compile(r"(?<!&)&(?=[^\W_])(?!\w+;|\w*=)"),
    # `user_id` and `MAX_SIZE` are names; `E_xit` is none.
    re.compile(r"(?:(?<![^\s(\[])|(?<=\b[A-Z])|(?<=\b[A-Z][a-z])|(?<=\b[A-Z][a-z]{2}))_(?=[^\W_])"),
    re.compile(r"(?<![^\s(\[])~(?=[^\W\d_])|(?<=\b[^\W\d_])~(?=[^\W\d_])"),
)
_SHORT_NAME = re.compile(r"\b[A-Z]{1,3}&[A-Z]{1,3}\b")  # AT&T
_IN_TEXT = re.compile(
    # _Save, but not _id, __init__ and user_id
    r"(?<![^\s(\[\"'“«])(?:_(?=[^\W\d_]{3,}(?![\w(.\[]))|~(?=[^\W\d_]{3,}(?![\w/\\])))"
    # E&xit, Cu&t and Vie&w, but not R&D, M&Ms, drag&drop and x&amp;
    r"|(?<![\w&])(?:[A-Z](?=&[a-z]{3})|[A-Z][a-z](?=&[a-z])"
    r"|[A-Za-z][a-z]{2,20}(?=&[a-z]{1,2}(?![a-z])))&(?=[a-z]+(?![\w&;=]))"
)


def accelerators_in_label(text: str) -> Iterator[int]:
    """Yield where accelerators stand in a label of a program: a button, an item of a menu."""
    names = [match.span() for match in _SHORT_NAME.finditer(text)]
    for pattern in _IN_LABELS:
        for match in pattern.finditer(text):
            if not any(start <= match.start() < end for start, end in names):
                yield match.start()


def with_accelerator_at_word(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a text, which may be no label, with its accelerator as a mark before its
    word, if it has one and no more. What a sign begins may be a name there.
    """
    text = join_text(tokens)
    matches = [*_IN_TEXT.finditer(text)]
    if len(matches) != 1 or text.count(matches[0].group()[-1]) != 1:
        yield from tokens
        return
    start, end = matches[0].span()
    accelerator = None
    word = []
    for token, span in with_spans(split_at(tokens, [start, end - 1, end])):
        if span == (end - 1, end):
            accelerator = token
        elif span.end <= start:
            yield token
        else:
            word.append(token)
    if accelerator:
        yield Token(Role.POINT, accelerator.raw)
    yield from word
