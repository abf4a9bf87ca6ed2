"""Split HTML into tokens with their places in the text, and find which of them are translated.

Nothing needs to be closed or well-formed: tags are those that browsers see (HTML standard, 13.2.5).
Libraries for HTML return a tree; none says where in the text its tags, references and spaces stand,
so that what is not translated could stay as it is.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from html import unescape
from itertools import accumulate
from typing import NamedTuple

from serving.text.markup.html_elements import (
    CLOSED_BY,
    CLOSES_PARAGRAPH,
    ESCAPABLE_RAW_TEXT,
    LINE_BREAK,
    NEVER_TRANSLATED,
    PREFORMATTED,
    RAW_TEXT,
    TRANSLATED_ON_REQUEST,
    VOID,
)

_COMMENT = r"<!--(?:>|->|.*?(?:-->|--!>|\Z))|<[!?][^>]*(?:>|\Z)|</[^A-Za-z][^>]*(?:>|\Z)"
# What template engines fill in. The counts bound the time that a "<%" without an end takes.
_TEMPLATE = r"<\?(?:php|=).*?(?:\?>|\Z)|<%[^%]{0,2000}+(?:%(?!>)[^%]{0,200}+){0,40}+%>"
_MARKUP = re.compile(
    rf"(?P<template>{_TEMPLATE})|(?P<doctype><!(?i:doctype)[^>]*(?:>|\Z))|(?P<comment>{_COMMENT})"
    r"|</(?P<end>[A-Za-z][^\s/>]*+)[^>]*>"
    r"|<(?P<start>[A-Za-z][^\s/>]*+)(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+>",
    re.DOTALL,
)
_TAG_START = re.compile(r"</?[A-Za-z]")
_TAG_NAME = re.compile(r"<[A-Za-z][^\s/>]*")
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s\"'>/=]++)(?:\s*+=\s*+(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'"
    r"|(?P<bare>[^\s\"'>][^\s>]*)))?"
)
_WITHOUT_TAGS = RAW_TEXT | ESCAPABLE_RAW_TEXT
_NEVER_EMPTY = VOID | _WITHOUT_TAGS  # whatever a slash at the end of their tags says
_QUOTES = {"double": '"', "single": "'", "bare": ""}
_SHORTEST_WITH_TRANSLATE = len("<b translate>")
_PRINTED = ("<%=", "<?=")  # template engines write words in the place of these
# Placeholders in angle brackets are no tags: %<count>d of Ruby, %<PRIu64> of C.
_BEFORE_PLACEHOLDER = re.compile(r"(?<!\d)%[-+#0]*\d{0,9}\Z")
_PLACEHOLDER = re.compile(r"<(PRI[A-Za-z]\w+|[A-Za-z_]\w*(?=>[-+#0\d.]*[A-Za-z](?!\w)))>")
_LONGEST_FLAGS = 12  # characters, from the percent sign to the bracket
_LONGEST_PAIR = 1_000  # characters, of tags that could be such placeholders


class HtmlTokenKind(Enum):
    """What a token of HTML is.

    EMPTY_TAG: `<x/>`. Browsers read it as a start tag, authors mean an element without content.
    COMMENT: also processing instructions and whatever else browsers ignore.
    TEMPLATE: what a template engine fills in.
    UNFINISHED_TAG: a tag that the text ends within.
    """

    TEXT = auto()
    START_TAG = auto()
    END_TAG = auto()
    EMPTY_TAG = auto()
    COMMENT = auto()
    DOCTYPE = auto()
    TEMPLATE = auto()
    UNFINISHED_TAG = auto()


# By the groups of `_MARKUP`.
_KINDS = {
    "template": HtmlTokenKind.TEMPLATE,
    "doctype": HtmlTokenKind.DOCTYPE,
    "comment": HtmlTokenKind.COMMENT,
    "end": HtmlTokenKind.END_TAG,
    "start": HtmlTokenKind.START_TAG,
}


class HtmlToken(NamedTuple):
    """A token of HTML, and its place in the text.

    name: of a tag, in small letters.
    translate: what a start tag says: that its element is translated, or that it is not.
    """

    kind: HtmlTokenKind
    start: int
    end: int
    name: str = ""
    translate: bool | None = None


class HtmlAttribute(NamedTuple):
    """An attribute of a tag.

    value: unescaped; None if it has none. start, end: of the value as it is written, in the text.
    quote: the quotes around it; empty if there are none.
    """

    name: str
    value: str | None
    start: int
    end: int
    quote: str


def tokenize_html(text: str) -> list[HtmlToken]:
    """Return the tokens of a text; one begins where the last one ends."""
    return [*_tokens(text)]


def _tokens(text: str) -> Iterator[HtmlToken]:
    place = 0
    while place < len(text):
        start, match = _find_markup(text, place)
        if start > place:
            yield HtmlToken(HtmlTokenKind.TEXT, place, start)
        if match is None:
            if start < len(text):
                yield HtmlToken(HtmlTokenKind.UNFINISHED_TAG, start, len(text))
            return
        yield (token := _token(text, match))
        place = token.end
        if token.name in _WITHOUT_TAGS and token.kind is HtmlTokenKind.START_TAG:
            end = _find_end_tag(text, token.name, place)
            if end > place:
                yield HtmlToken(HtmlTokenKind.TEXT, place, end)
            place = end


def _find_markup(text: str, place: int) -> tuple[int, re.Match[str] | None]:
    """Return where the next tag or comment begins, and its match.

    There is no match for a tag that never ends, nor at the end of the text. Such a tag has all of
    the text that remains: to look for others in it would take the square of the time.
    """
    while (place := text.find("<", place)) >= 0:
        if end := _end_of_placeholder(text, place):
            place = end
        elif match := _MARKUP.match(text, place):
            return place, match
        elif _TAG_START.match(text, place):
            return place, None
        else:
            place += 1
    return len(text), None


def _end_of_placeholder(text: str, start: int) -> int | None:
    """Return where a placeholder in angle brackets ends, as %<count>d; None for a tag."""
    before = text[max(start - _LONGEST_FLAGS, 0) : start]
    if "%" not in before or not _BEFORE_PLACEHOLDER.search(before):
        return None
    match = _PLACEHOLDER.match(text, start)
    if match is None or text.find(f"</{match[1]}", start, start + _LONGEST_PAIR) >= 0:
        return None
    return match.end()


def _find_end_tag(text: str, name: str, place: int) -> int:
    """Return where the content of an element without tags ends."""
    match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, place)
    return match.start() if match and name != "plaintext" else len(text)


def _token(text: str, match: re.Match[str]) -> HtmlToken:
    start, end = match.span()
    kind = _KINDS[match.lastgroup or ""]
    if kind is HtmlTokenKind.END_TAG:
        return HtmlToken(kind, start, end, match["end"].lower())
    if kind is not HtmlTokenKind.START_TAG:
        return HtmlToken(kind, start, end)
    name = match["start"].lower()
    if text.startswith("/>", end - 2) and name not in _NEVER_EMPTY:
        kind = HtmlTokenKind.EMPTY_TAG
    return HtmlToken(kind, start, end, name, _translate_attribute(text, start, end))


def _translate_attribute(text: str, start: int, end: int) -> bool | None:
    """Return whether a tag asks that its element is translated; None if it does not say."""
    if end - start < _SHORTEST_WITH_TRANSLATE or "translate" not in text[start:end].lower():
        return None
    # The first of two attributes of a name counts.
    values = {
        attribute.name: (attribute.value or "").lower()
        for attribute in reversed([*_attributes(text, start, end)])
    }
    if values.get("translate") == "no" or "notranslate" in values.get("class", "").split():
        return False
    return True if values.get("translate") in ("yes", "") else None


def tag_attributes(text: str, token: HtmlToken) -> Iterator[HtmlAttribute]:
    """Yield the attributes of a start tag, up to quotes that are not paired."""
    return _attributes(text, token.start, token.end)


def _attributes(text: str, start: int, end: int) -> Iterator[HtmlAttribute]:
    name_match = _TAG_NAME.match(text, start)
    place = name_match.end() if name_match else start
    for match in _ATTRIBUTE.finditer(text, place, end):
        if not text[place : match.start()].isspace():
            return
        place = match.end()
        name = match["name"].lower()
        group = match.lastgroup or "name"
        if group == "name":
            yield HtmlAttribute(name, None, place, place, "")
        else:
            yield HtmlAttribute(name, unescape(match[group]), *match.span(group), _QUOTES[group])


def visible_text(text: str, tokens: Sequence[HtmlToken]) -> str:
    """Return the words of an element that is not translated, as a reader sees them."""
    parts = []
    hidden = ""  # the element with raw text that is open
    for token in tokens:
        raw = text[token.start : token.end]
        if token.kind is HtmlTokenKind.START_TAG and token.name in RAW_TEXT:
            hidden = token.name
        elif token.kind is HtmlTokenKind.END_TAG and token.name == hidden:
            hidden = ""
        elif token.kind is HtmlTokenKind.TEXT and not hidden:
            parts.append(unescape(raw))
        elif token.name == LINE_BREAK:
            parts.append(" ")
        elif is_printed(raw):
            parts.append(raw)
    return " ".join("".join(parts).split())


def is_printed(raw: str) -> bool:
    """Return whether a template engine writes words in the place of a token."""
    return raw.startswith(_PRINTED)


class Translatability(NamedTuple):
    """Whether a token is translated.

    has_attributes: whether the attributes of its tag are.
    is_preformatted: its spaces and line ends are seen.
    element_end: of a start tag, the number of the token after its element, if nothing in it is
        translated; None for other tokens.
    """

    is_translated: bool
    has_attributes: bool = False
    is_preformatted: bool = False
    element_end: int | None = None


def translatabilities(
    tokens: Sequence[HtmlToken], ignored: Collection[str] = ()
) -> list[Translatability]:
    """Return for each token whether it is translated. ignored: names of elements that are not."""
    ends = _element_ends(tokens)
    choices = [_translates_content(token, ignored) for token in tokens]
    num_requests = [0, *accumulate(choice is True for choice in choices)]
    result: list[Translatability] = []
    # The open elements that change something: their ends, and what holds within.
    within: list[tuple[int, bool, bool]] = []
    for number, (token, choice) in enumerate(zip(tokens, choices, strict=True)):
        while within and within[-1][0] <= number:
            within.pop()
        _, outer, is_preformatted = within[-1] if within else (0, True, False)
        if token.kind not in (HtmlTokenKind.START_TAG, HtmlTokenKind.EMPTY_TAG):
            result.append(Translatability(outer, False, is_preformatted))
            continue
        has_attributes = outer if token.translate is None else token.translate
        end = ends.get(number, number + 1)
        inner = outer if choice is None else choice
        if token.name in VOID or token.kind is HtmlTokenKind.EMPTY_TAG:
            result.append(Translatability(outer, has_attributes, is_preformatted))
            continue
        is_whole = outer and not inner and num_requests[end] == num_requests[number]
        is_preformatted |= token.name in PREFORMATTED
        result.append(
            Translatability(inner, has_attributes, is_preformatted, end if is_whole else None)
        )
        within.append((end, inner, is_preformatted))
    return result


def _translates_content(token: HtmlToken, ignored: Collection[str]) -> bool | None:
    """Return whether the content of an element is translated; None if it is as around it."""
    if token.name in NEVER_TRANSLATED or token.name in ignored:
        return False
    if token.translate is None and token.name in TRANSLATED_ON_REQUEST:
        return False
    return token.translate


def _element_ends(tokens: Sequence[HtmlToken]) -> dict[int, int]:
    """Return for each start tag the number of the token after its element."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    num_open: Counter[str] = Counter()

    def close(end: int) -> None:
        number = opened.pop()
        ends[number] = end
        num_open[tokens[number].name] -= 1

    for number, token in enumerate(tokens):
        if token.kind is HtmlTokenKind.START_TAG and token.name not in VOID:
            while opened and _closes(token.name, tokens[opened[-1]].name):
                close(number)
            opened.append(number)
            num_open[token.name] += 1
        elif token.kind is HtmlTokenKind.END_TAG and num_open[token.name]:
            while tokens[opened[-1]].name != token.name:
                close(number)
            close(number + 1)
    while opened:
        close(len(tokens))
    return ends


def _closes(name: str, open_name: str) -> bool:
    """Return whether a start tag of a name closes an open element."""
    if open_name == "p":
        return name in CLOSES_PARAGRAPH
    return open_name in CLOSED_BY.get(name, ())
