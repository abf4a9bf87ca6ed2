"""Checks plain texts, spells tokens, writes the ends of translations as those of their sources, and
finds the branches of ICU messages.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from serving.errors import RequestError, TooLarge, Untokenizable
from serving.text.alignment import Span


@contextmanager
def tokenizing(field: str) -> Iterator[None]:
    """Blame this field for a text, read inside, that the tokenizer fails at."""
    try:
        yield
    except Untokenizable as error:
        raise Untokenizable(field, error.value, error.message) from None


def check_text(field: str, text: str, max_characters: int | None = None) -> None:
    """Raise RequestError if `text` is too long or is not plain Unicode text.

    max_characters: None is no limit.
    """
    if max_characters is not None and len(text) > max_characters:
        message = f"must be at most {max_characters} characters, this has {len(text)}"
        raise TooLarge(field, text, message)
    if "\0" in text:
        raise RequestError(field, text, "must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"must be valid Unicode, character {error.start} is half of a surrogate pair"
        raise RequestError(field, text, message) from None


def check_texts(field: str, texts: Iterable[str], max_characters: int) -> None:
    """Raise RequestError if one of `texts` is refused, or all together are too long."""
    num_characters = 0
    for text in texts:
        check_text(field, text, max_characters)
        num_characters += len(text)
    if num_characters > max_characters:
        message = f"must be at most {max_characters} characters in all"
        raise TooLarge(field, f"{num_characters} characters", message)


BytesOrId = bytes | int  # a token's bytes, or its id where the tokenizer has no token of that id
_OF_BYTES = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")


def token_text(token: BytesOrId) -> str:
    """Return a token's text; one that is part of a character is written as OpenAI does, one
    that has only an id as vLLM does.
    """
    if isinstance(token, int):
        return f"token_id:{token}"
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token)


def bytes_of(text: str) -> bytes:
    """Return the bytes of a token from what `token_text` returned for it; for a token that has only
    an id, the bytes of that text.
    """
    match = _OF_BYTES.fullmatch(text)
    return bytes.fromhex(match[1].replace("\\x", "")) if match else text.encode()


_TAGS = r"(?:\s|<[^<>]*>)*"
_FIRST_LETTER = re.compile(rf"^({_TAGS})([^\W\d_])")
# Of a text that is read from its end, where a run of marks is looked at once.
_LAST_MARKS = re.compile(r"((?:\s|>[^<>]*<)*)([.!?…。！？]*)")

_ENDS_WITH_WORD = re.compile(r"\w(?:[\s)\]}'’\"”»]|<[^<>]*>)*\Z")


def formatted_as(source: str, translation: str) -> str:
    """Return the translation with a first letter as large or small as the source's, and with its
    closing marks. Tags and spaces around both stay.
    """
    return with_end_mark(source, _with_beginning(source, translation))


def _with_beginning(source: str, translation: str) -> str:
    first = _FIRST_LETTER.match(source)
    if first is None:
        return translation
    recase = str.upper if first[2].isupper() else str.lower if first[2].islower() else str
    return _FIRST_LETTER.sub(lambda match: match[1] + recase(match[2]), translation, count=1)


def with_end_mark(source: str, translation: str) -> str:
    """Return the translation with the marks that end its source if it ends with none, and with none
    if the source ends with a word. Marks are left as the target language writes them where both
    have some.
    """
    wanted, own = _LAST_MARKS.match(source[::-1]), _LAST_MARKS.match(translation[::-1])
    assert wanted is not None and own is not None  # they match nothing at least
    if wanted[2] and not own[2]:
        text = translation[: len(translation) - own.end()]
        return text + wanted[2][::-1] + own[1][::-1]
    return without_added_end(source, translation)


def without_added_end(source: str, translation: str) -> str:
    """Return the translation without the marks that it ends with, if the source ends with a
    word.
    """
    end_marks = _LAST_CLAUSE_MARKS.match(translation[::-1])
    assert end_marks is not None  # it matches nothing at least
    text = translation[: len(translation) - end_marks.end()].rstrip()
    if end_marks[2] and text and _ENDS_WITH_WORD.search(source):
        return text + end_marks[1][::-1]
    return translation


_ENDS_SENTENCE = re.compile(r"[.!?…。！？｡।॥؟۔።։။][\"'”»)\]]*\Z")
_LAST_CLAUSE_MARKS = re.compile(r"((?:\s|>[^<>]*<)*)([.!?…。！？,;:，；：、]*)")
_SENTENCE_MARKS = frozenset(".!?…。！？")
_KEEPS_CAPITAL = re.compile(rf"{_TAGS}(?:I\b|[^\W\d_]\w*[A-Z])")  # I, NATO, McDonald
WITH_CAPITAL_NOUNS = frozenset({"de", "lb"})  # there a capital does not make a name


def is_cut_sentence(segment: str, gap: str) -> bool:
    """Return whether a segment is a part of a sentence that goes on after it.

    gap: what stands between it and the next segment of the text.
    """
    is_within_line = not gap.strip(" \t\u00a0\u202f\u3000")
    return is_within_line and _ENDS_SENTENCE.search(segment) is None


def as_beginning_of_sentence(source: str, translation: str, language: str) -> str:
    """Return the translation of a part of a sentence that goes on, with the mark of its source at
    its end where the model has ended a sentence.
    """
    wanted = _LAST_CLAUSE_MARKS.match(source[::-1])
    own = _LAST_CLAUSE_MARKS.match(translation[::-1])
    assert wanted is not None and own is not None  # they match nothing at least
    if not (set(own[2]) <= _SENTENCE_MARKS or (wanted[2] and own[2] == ",")):
        return translation
    mark = wanted[2][::-1]
    if language == "fr" and mark in (";", ":"):
        mark = " " + mark
    return translation[: len(translation) - own.end()] + mark + own[1][::-1]


def as_rest_of_sentence(source: str, translation: str, language: str) -> str:
    """Return the translation of a part of a sentence that others come before, with a small first
    letter if its source has one, but of nouns in languages that write them with capitals.
    """
    first = _FIRST_LETTER.match(source)
    is_small = first is not None and first[2].islower()
    is_name = _KEEPS_CAPITAL.match(translation) is not None or translation.isupper()
    if not is_small or is_name or language in WITH_CAPITAL_NOUNS:
        return translation
    return _with_beginning(source, translation)


_BEGINNING = re.compile(
    r"\{\s*[\w.-]+\s*,\s*(plural|select|selectordinal)\s*,\s*(?:offset:\d+\s*)?"
)
_SELECTOR = re.compile(r"\s*(=\d+|[^\s{}'=,\ufdd0]+)\s*\{")  # U+FDD0: a code in documents
_END = re.compile(r"\s*\}")
_QUOTED = re.compile(r"''|'[{}#|][^']*'")
_MOST_NESTED = 5


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument with branches of text.

    span: its position in the message.
    branches: the positions of the branches' texts.
    selectors: of each branch, as "one" or "=0".
    has_number: a "#" in a branch stands for the argument's number.
    """

    span: Span
    branches: tuple[Span, ...]
    selectors: tuple[str, ...]
    has_number: bool


def arguments(message: str) -> Iterator[Argument]:
    """Yield the arguments with branches that are within no other and well-formed."""
    start = 0
    while match := _BEGINNING.search(message, start):
        argument = _argument(message, match)
        if argument is not None:
            yield argument
        start = match.end() if argument is None else argument.span.end


def _argument(message: str, beginning: re.Match[str]) -> Argument | None:
    branches, selectors, position = [], [], beginning.end()
    while selector := _SELECTOR.match(message, position):
        end = _end_of_branch(message, selector.end())
        if end is None:
            return None
        branches.append(Span(selector.end(), end))
        selectors.append(selector[1])
        position = end + 1
    if not branches or not (end_match := _END.match(message, position)):
        return None
    span = Span(beginning.start(), end_match.end())
    return Argument(span, tuple(branches), tuple(selectors), beginning[1] != "select")


def _end_of_branch(message: str, start: int) -> int | None:
    """Return the position of the brace that closes a branch, or None."""
    depth, position = 1, start
    while position < len(message):
        character = message[position]
        if character == "'" and (quoted := _QUOTED.match(message, position)):
            position = quoted.end()
            continue
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return position
        if depth > 2 * _MOST_NESTED:
            return None
        position += 1
    return None
