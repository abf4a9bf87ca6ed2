"""Read fragments of XML, and keep how everything is written.

A fragment is parsed inside an element of our own, where a document type cannot stand: there are no
entities but XML's five.
"""

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from serving.errors import RequestError
from serving.text.markup.tokens import (
    LINE_BREAK_TAG,
    Markup,
    Role,
    Token,
    range_name,
    text_tokens,
)
from serving.text.markup.xml_tokens import XmlSyntaxError, XmlToken, XmlTokenKind, tokenize_xml

_DECLARATION = r"\ufeff?\s*+(?:<\?xml\s[^>]*\?>\s*+)?"
_QUOTED = r"\"[^\"]*+\"|'[^']*+'"
_COMMENT = r"<!--(?:(?!--).)*+-->"
_INSTRUCTION = r"<\?(?!xml\s)(?:(?!\?>).)*+\?>"
# What may stand before the first element. A document type that declares no entities is left as it
# is; nothing is looked up for it.
_PROLOG = re.compile(
    rf"{_DECLARATION}(?:(?:\s|{_COMMENT}|{_INSTRUCTION})*+(?P<doctype><!DOCTYPE\s"
    rf"(?:[^\[\]<>\"']|{_QUOTED})*+(?:\[(?P<declarations>(?:[^\[\]<>\"']|{_QUOTED}|{_COMMENT}"
    rf"|{_INSTRUCTION}|<!(?!--)(?:[^<>\"']|{_QUOTED})*+>)*+)\]\s*+)?>\s*+))?",
    re.DOTALL,
)
_DECLARES_NOTHING = re.compile(rf"{_COMMENT}|{_INSTRUCTION}|{_QUOTED}", re.DOTALL)
# The elements at the ends of ranges, and the attributes that are the same at both.
_RANGES = {
    "bpt": "bpt-ept",
    "ept": "bpt-ept",
    "bx": "bx-ex",
    "ex": "bx-ex",
    "sc": "sc-ec",
    "ec": "sc-ec",
    "sm": "sm-em",
    "em": "sm-em",
}
_START_OR_END = re.compile(r"-?(?:[Ss]tart|[Ee]nd)$")
_RANGE_KEYS = ("rid", "startRef", "i", "id", "name")


def read_xml(text: str, markup: Markup, breaks_lines: bool) -> Iterator[Token]:
    """Yield the tokens of a fragment of XML. Text in attributes is not read.

    Raises RequestError if it is not well-formed.
    """
    prolog = _PROLOG.match(text)
    assert prolog is not None  # it matches nothing at least
    start = prolog.end() if prolog.group().strip() else 0
    if start:
        if prolog["doctype"]:
            _check_prolog(prolog, text)
        yield Token(Role.BREAK, text[:start])
    document = f"<fragment>{text[start:]}</fragment>"
    yield from _Reader(document, _tokenize(document, text), markup, breaks_lines).tokens()


def _check_prolog(prolog: re.Match[str], text: str) -> None:
    declarations = _DECLARES_NOTHING.sub("", prolog["declarations"] or "")
    if "<!ENTITY" in declarations or "%" in declarations:
        message = "is not well-formed XML by itself: its document type declares entities, which"
        message += " are refused"
        raise RequestError("text", text, message)
    _tokenize(f"{prolog.group()}<fragment/>", text)


def _tokenize(document: str, text: str) -> list[XmlToken]:
    """Return the tokens of a document. text: what its sender wrote, for the error."""
    try:
        return tokenize_xml(document)
    except XmlSyntaxError as error:
        raise RequestError("text", text, f"is not well-formed XML: {error}") from None


def _range(name: str, attributes: Mapping[str, str]) -> str:
    """Return by what two empty elements find each other, as XLIFF, TMX and office documents have
    them at the ends of a range; empty for any other.
    """
    local = name.rpartition(":")[2]
    kind = _RANGES.get(local) or _START_OR_END.sub("", local)
    keys = {key.rpartition(":")[2]: value for key, value in attributes.items()}
    key = next((keys[name] for name in _RANGE_KEYS if name in keys), "")
    return range_name(kind, key) if kind != local and key else ""


class _Reader:
    """A reader of the tokens of XML in an element, which says what each is to a translation."""

    def __init__(
        self, document: str, xml_tokens: Sequence[XmlToken], markup: Markup, breaks_lines: bool
    ) -> None:
        self._document, self._xml_tokens = document, xml_tokens
        self._markup, self._breaks_lines = markup, breaks_lines
        self._ends, self._with_text = _find_ends(document, xml_tokens)
        # Of each open element, whether its children stand within text, and its role.
        self._within_text = [0 in self._with_text]
        self._roles: list[Role] = []

    def tokens(self) -> Iterator[Token]:
        """Yield the tokens within the first element."""
        text = ""
        number = 1
        while number < len(self._xml_tokens) - 1:
            token = self._xml_tokens[number]
            if token.kind in (XmlTokenKind.TEXT, XmlTokenKind.CDATA):
                text += self._raw(token)
            else:
                yield from text_tokens(text, True, self._breaks_lines)
                text = ""
                if token.name in self._markup.ignore_tags and number in self._ends:
                    end = self._ends[number] + 1
                    yield self._ignored_element(self._xml_tokens[number:end])
                    number = end
                    continue
                yield self._markup_token(number, token)
            number += 1
        yield from text_tokens(text, True, self._breaks_lines)

    def _raw(self, token: XmlToken) -> str:
        """Return how a token is written in a translation; CDATA sections as escaped text."""
        if token.kind is XmlTokenKind.CDATA:
            return escape(token.cdata(self._document))
        return token.raw(self._document)

    def _ignored_element(self, element: Sequence[XmlToken]) -> Token:
        raw = "".join(map(self._raw, element))
        if self._role(element[0].name) is Role.BREAK:
            return Token(Role.BREAK, raw)
        words = " ".join(_visible_text(self._document, element).split())
        return Token(Role.NON_TRANSLATABLE, raw, words) if words else Token(Role.POINT, raw)

    def _markup_token(self, number: int, token: XmlToken) -> Token:
        raw = token.raw(self._document)
        if token.kind is XmlTokenKind.OTHER:
            return Token(Role.POINT, raw)
        if token.kind is XmlTokenKind.END_TAG:
            self._within_text.pop()
            role = Role.BREAK if self._roles.pop() is Role.BREAK else Role.CLOSE
            return Token(role, raw, name=token.name)
        role = self._role(token.name)
        if token.kind is XmlTokenKind.START_TAG:
            self._within_text.append(role is not Role.BREAK or number in self._with_text)
            self._roles.append(role)
            return Token(role, raw, name=token.name)
        if role is Role.OPEN and token.name == LINE_BREAK_TAG:
            return Token(Role.LINE_BREAK, raw, " ")
        name = _range(token.name, token.attributes) or token.name
        return Token(Role.POINT if role is Role.OPEN else role, raw, name=name)

    def _role(self, name: str) -> Role:
        """Return whether the tags of an element are around words or between sentences."""
        markup = self._markup
        if name in markup.splitting_tags:
            return Role.BREAK
        if name in markup.non_splitting_tags or not markup.outline_detection:
            return Role.OPEN
        return Role.OPEN if self._within_text[-1] else Role.BREAK


def _find_ends(document: str, tokens: Sequence[XmlToken]) -> tuple[dict[int, int], set[int]]:
    """Return the numbers of end tags by those of their start tags, and the numbers of the start
    tags of elements in which text stands directly.
    """
    ends: dict[int, int] = {}
    with_text: set[int] = set()
    opened: list[int] = []
    for number, token in enumerate(tokens):
        if token.kind is XmlTokenKind.START_TAG:
            opened.append(number)
        elif token.kind is XmlTokenKind.END_TAG:
            ends[opened.pop()] = number
        elif opened and _visible_text(document, [token]).strip():
            with_text.add(opened[-1])
    return ends, with_text


def _visible_text(document: str, tokens: Sequence[XmlToken]) -> str:
    parts = []
    for token in tokens:
        if token.kind is XmlTokenKind.TEXT:
            parts.append(html.unescape(token.raw(document)))
        elif token.kind is XmlTokenKind.CDATA:
            parts.append(token.cdata(document))
        elif token.kind is XmlTokenKind.EMPTY_TAG and token.name == LINE_BREAK_TAG:
            parts.append(" ")
    return "".join(parts)
