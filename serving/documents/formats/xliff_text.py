"""Reads what stands in a source of XLIFF as text and codes, and writes it for a target.

Codes of 1.2 are `g`, `x`, `bx`, `ex`, `bpt`, `ept`, `ph` and `it`; of 2.0 `pc`, `sc`, `ec`, `ph`
and `cp`. `mrk`, `sm` and `em` annotate what is within them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from serving.documents.parts.inline import Fragment
from serving.documents.parts.spans import Mark, Role, Span
from serving.documents.parts.tags import CODE, is_placeholder, message_pieces, word_mark
from serving.documents.parts.xml_text import (
    XmlElement,
    is_cdata,
    meant,
    text_within,
    written_as_cdata,
    written_as_text,
)

_PAIRS = frozenset({"g", "mrk", "pc"})
_ROLES = dict.fromkeys(("bpt", "bx", "sc", "sm"), Role.OPENS) | dict.fromkeys(
    ("ept", "ex", "ec", "em"), Role.CLOSES
)
# Angular's codes, which all are `x`: <x id="START_LINK"/>here<x id="CLOSE_LINK"/>.
_NAMED_ROLE = re.compile(r"(START|CLOSE)_([A-Z_]+?)(?:_\d+)?\Z")
_BLANK_LINES = re.compile(r"\A\s*\n\s*|(?<!\s)\s*\n\s*\Z")
_WRAPPED = re.compile(r"(?<![ \t])[ \t]*\n[ \t]+")  # tried once a run of spaces
_ELEMENT = "element "  # begins the names of marks that are elements' own tags


class XliffText:
    """Holds what is translated of an element."""

    def __init__(self, element: XmlElement, document: str) -> None:
        inner = document[element.inner_start : element.inner_end]
        self._is_cdata = is_cdata(inner)
        if self._is_cdata:
            pieces: Iterable[str | Mark] = message_pieces(meant(inner))
            self._span = Span(0, 0, [*pieces])
        else:
            pieces = _pieces([*_parts(element, document)], element, written_as_text)
            self._span = Span(0, 0, [*pieces], written_as_text)
        self.fragment: Fragment = self._span.fragment

    def translated(self, translation: str) -> str:
        """Return a translation as XML."""
        text = self._span.translated(translation)
        return written_as_cdata(text) if self._is_cdata else text


def _pieces(
    parts: list[str | Mark], element: XmlElement, written: Callable[[str], str]
) -> Iterator[str | Mark]:
    """Yield text and marks; those that open are closed within the same element."""
    codes = [part for part in parts if isinstance(part, Mark)]
    known = {*map(id, codes)}
    text = "".join(CODE if isinstance(part, Mark) else part.replace(CODE, " ") for part in parts)
    if element.inherited("xml:space") != "preserve":
        text = _WRAPPED.sub(" ", _BLANK_LINES.sub("", text))
    within: list[str] = [""]
    for piece in message_pieces(text, codes=codes):
        if isinstance(piece, str):
            yield piece
            continue
        raw = piece.raw if id(piece) in known else written(piece.raw)
        if piece.name.startswith(_ELEMENT):
            yield piece
            if piece.role is Role.OPENS:
                within.append(piece.name)
            else:
                within.pop()
        else:
            yield replace(piece, raw=raw, name=f"{piece.name} in {within[-1]}")


def _parts(element: XmlElement, document: str) -> Iterator[str | Mark]:
    """Yield what an element holds: text as it is meant, and codes as they are written."""
    place = element.inner_start
    for child in element.children:
        if child.start < place:  # within what is protected
            continue
        yield meant(document[place : child.start])
        protected_end = _protected_end(child, element)
        place = protected_end or child.end
        if protected_end:
            raw = document[child.start : place]
            yield word_mark(raw, text_within(raw).strip())
        elif child.name in _PAIRS and not child.is_empty:
            name = f"{_ELEMENT}{child.start}"
            yield Mark(child.tag, Role.OPENS, name)
            yield from _parts(child, document)
            yield Mark(child.end_tag, Role.CLOSES, name)
        else:
            raw = document[child.start : place]
            yield Mark(raw, *_role_of(child), shown=_placeholder(child, raw))
    yield meant(document[place : element.inner_end])


def _protected_end(child: XmlElement, parent: XmlElement) -> int | None:
    """Return where that ends which a child says is not to be translated; None if it does not."""
    said = child.attributes
    is_protected = said.get("translate") == "no" or said.get("its:translate") == "no"
    if child.name == "sm" and is_protected:
        ends = (each for each in parent.children if each.name == "em" and each.start > child.start)
        return next((each.end for each in ends if _key(each) == _key(child)), None)
    if child.name == "mrk" and (is_protected or said.get("mtype") == "protected"):
        return child.end
    return None


def _role_of(code: XmlElement) -> tuple[Role, str]:
    if code.name in _ROLES:
        kind = "annotation" if code.name in ("sm", "em") else "code"
        return _ROLES[code.name], f"{kind} {_key(code)}"
    if code.name == "x" and (found := _NAMED_ROLE.match(code.attributes.get("id", ""))):
        return Role.OPENS if found[1] == "START" else Role.CLOSES, found[2]
    return Role.STANDS, ""


def _placeholder(code: XmlElement, raw: str) -> str:
    """Return the placeholder that a code stands for, if it says so; else an empty text."""
    said = (code.attributes.get(name, "") for name in ("equiv-text", "equiv", "disp"))
    shown = next((each.strip() for each in (text_within(raw), *said) if each.strip()), "")
    return shown if is_placeholder(shown) else ""


def _key(code: XmlElement) -> str | None:
    """Return what the two ends of a range have in common."""
    said = code.attributes
    return said.get("startRef") or said.get("rid") or said.get("id")
