"""Finds accelerators: signs before the letter that opens a menu by keyboard, as in `&Open`."""

import re
from collections.abc import Iterator, Sequence

from serving.text.markup.tokens import Role, Token, join_text, split_at, with_spans
from serving.text.spans import Span

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


def find_accelerators(text: str, is_label: bool) -> Iterator[Span]:
    """Yield where accelerators stand: from the start of the word to after the sign.

    is_label: the text is a label of a program, as of a button or an item of a menu, where every
        sign counts but those of short names; elsewhere what a sign begins may be a name itself.
    """
    if not is_label:
        yield from (Span(*match.span()) for match in _IN_TEXT.finditer(text))
        return
    names = [match.span() for match in _SHORT_NAME.finditer(text)]
    for pattern in _IN_LABELS:
        for match in pattern.finditer(text):
            if not any(start <= match.start() < end for start, end in names):
                yield Span(*match.span())


def with_accelerator_at_word(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of a text that may be no label, with its accelerator as a mark before its
    word, if it has one and no more.
    """
    text = join_text(tokens)
    accelerators = [*find_accelerators(text, is_label=False)]
    if len(accelerators) != 1 or text.count(text[accelerators[0].end - 1]) != 1:
        yield from tokens
        return
    start, end = accelerators[0]
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
