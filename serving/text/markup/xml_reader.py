"""Reads fragments of XML, and keeps how everything is written.

The parser is expat, fed with the fragment inside an element of our own: there a document type
cannot stand, so that there are no entities but XML's five and nothing outside the text is ever
asked for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from xml.parsers import expat
from xml.sax.saxutils import escape

from serving.errors import RequestError
from serving.text.markup.elements import (
    ElementToken,
    NonTranslatable,
    with_whole_elements,
)
from serving.text.markup.tokens import (
    LINE_BREAK_TAG,
    Markup,
    Role,
    Token,
    range_name,
    text_tokens,
)

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
_WRAPPER = "<fragment>{}</fragment>"


class _Kind(Enum):
    START = auto()
    END = auto()
    TEXT = auto()
    CDATA = auto()
    OTHER = auto()


@dataclass(slots=True)
class _Event:
    """Notes what the parser found.

    start: in bytes; what is found goes on to the start of the next.
    holds_text: of an element, if text stands in it beside other elements.
    range: of an element at the end of a range, by which the two find each other.
    """

    kind: _Kind
    start: int
    name: str = ""
    text: str = ""
    holds_text: bool = False
    range: str = ""


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
    data = _WRAPPER.format(text[start:]).encode("utf-8", "surrogatepass")
    events = _events(data, text)
    yield from with_whole_elements(_Reader(data, markup, breaks_lines).parts(events))


def _check_prolog(prolog: re.Match[str], text: str) -> None:
    declarations = _DECLARES_NOTHING.sub("", prolog["declarations"] or "")
    if "<!ENTITY" in declarations or "%" in declarations:
        message = "is not well-formed XML by itself: its document type declares entities, which"
        message += " are refused"
        raise RequestError("text", text, message)
    _events(f"{prolog.group()}<fragment/>".encode("utf-8", "surrogatepass"), text)


def _events(data: bytes, text: str) -> list[_Event]:
    try:
        return _Recorder().record(data)
    except expat.ExpatError as error:
        message = f"is not well-formed XML: {expat.ErrorString(error.code)}"
        raise RequestError("text", text, message) from None


def _range(name: str, attributes: Mapping[str, str]) -> str:
    """Return by what two empty elements find each other, as XLIFF, TMX and office documents have
    them at the ends of a range; empty for any other.
    """
    local = name.rpartition(":")[2]
    kind = _RANGES.get(local) or _START_OR_END.sub("", local)
    keys = {key.rpartition(":")[2]: value for key, value in attributes.items()}
    key = next((keys[each] for each in _RANGE_KEYS if each in keys), "")
    return range_name(kind, key) if kind != local and key else ""


class _Recorder:
    """Has expat note all events of a fragment."""

    def __init__(self) -> None:
        self._events: list[_Event] = []
        self._open: list[_Event] = []
        self._text_kind = _Kind.TEXT
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartCdataSectionHandler = lambda: self._cdata(_Kind.CDATA)
        parser.EndCdataSectionHandler = lambda: self._cdata(_Kind.TEXT)
        parser.CommentHandler = lambda data: self._note(_Kind.OTHER)
        parser.ProcessingInstructionHandler = lambda target, data: self._note(_Kind.OTHER)

    def record(self, data: bytes) -> list[_Event]:
        self._parser.Parse(data, True)
        return self._events

    def _note(self, kind: _Kind, name: str = "", text: str = "") -> None:
        self._events.append(_Event(kind, self._parser.CurrentByteIndex, name, text))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._note(_Kind.START, name)
        self._events[-1].range = _range(name, attributes)
        self._open.append(self._events[-1])

    def _end(self, name: str) -> None:
        self._open.pop()
        self._note(_Kind.END, name)

    def _characters(self, text: str) -> None:
        self._note(self._text_kind, text=text)
        if not text.isspace():
            self._open[-1].holds_text = True

    def _cdata(self, text_kind: _Kind) -> None:
        """Note where a section begins or ends, as text that reads as nothing."""
        self._text_kind = text_kind
        self._note(_Kind.CDATA)


class _Reader:
    """Says of each event what it is to a translation."""

    def __init__(self, data: bytes, markup: Markup, breaks_lines: bool) -> None:
        self._data, self._markup, self._breaks_lines = data, markup, breaks_lines
        self._within_text: list[bool] = []  # of each element that is open
        self._roles: list[Role] = []

    def parts(self, events: Sequence[_Event]) -> Iterator[ElementToken]:
        """Yield the parts of what stands in the first element, our own."""
        self._within_text.append(events[0].holds_text)
        text = ""
        for event, following in pairwise(events[1:]):
            raw = self._data[event.start : following.start].decode("utf-8", "surrogatepass")
            if event.kind is _Kind.TEXT:
                text += raw
            elif event.kind is _Kind.CDATA:
                text += escape(event.text)
            else:
                yield from self._text(text)
                text = ""
                yield from self._mark(event, raw)
        yield from self._text(text)

    def _text(self, raw: str) -> Iterator[ElementToken]:
        return map(
            ElementToken, text_tokens(raw, has_entities=True, breaks_lines=self._breaks_lines)
        )

    def _mark(self, event: _Event, raw: str) -> Iterator[ElementToken]:
        if event.kind is _Kind.OTHER:
            yield ElementToken(Token(Role.POINT, raw))
        elif event.kind is _Kind.END:
            self._within_text.pop()
            is_break = self._roles.pop() is Role.BREAK
            if raw:  # else the element is empty and was given whole
                role = Role.BREAK if is_break else Role.CLOSE
                yield ElementToken(Token(role, raw, name=event.name), -1)
        else:
            yield self._start(event, raw)

    def _start(self, event: _Event, raw: str) -> ElementToken:
        role = self._role(event.name)
        self._within_text.append(role is not Role.BREAK or event.holds_text)
        self._roles.append(role)
        if role is Role.OPEN and event.name == LINE_BREAK_TAG and raw.endswith("/>"):
            return ElementToken(Token(Role.LINE_BREAK, raw, " "))
        if raw.endswith("/>"):
            name = event.range or event.name
            return ElementToken(Token(Role.POINT if role is Role.OPEN else role, raw, name=name))
        non_translatable = None
        if event.name in self._markup.ignore_tags:
            non_translatable = (
                NonTranslatable.AS_BREAK if role is Role.BREAK else NonTranslatable.AS_WORDS
            )
        return ElementToken(Token(role, raw, name=event.name), 1, non_translatable)

    def _role(self, name: str) -> Role:
        markup = self._markup
        if name in markup.splitting_tags:
            return Role.BREAK
        if name in markup.non_splitting_tags or not markup.outline_detection:
            return Role.OPEN
        return Role.OPEN if self._within_text[-1] else Role.BREAK
