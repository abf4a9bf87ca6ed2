"""Read texts with the inline codes of XLIFF and TMX.

Codes of XLIFF 1.2 are `g`, `x`, `bx`, `ex`, `bpt`, `ept`, `ph` and `it`; of 2.x `pc`, `sc`, `ec`,
`ph` and `cp`; of TMX `bpt`, `ept`, `ph`, `it`, `ut` and `hi`. `mrk`, `sm` and `em` annotate the
text within them.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from serving.documents.fragment import Fragment
from serving.documents.messages import CODE, is_placeholder, split_message, word_mark
from serving.documents.spans import InlineMark, MarkRole, TextSpan
from serving.documents.xml_elements import (
    XmlElement,
    cdata_section,
    escape_text,
    is_cdata,
    unescape_text,
)

_PAIRS = frozenset({"g", "hi", "mrk", "pc"})
_ROLES = dict.fromkeys(("bpt", "bx", "sc", "sm"), MarkRole.OPENS) | dict.fromkeys(
    ("ept", "ex", "ec", "em"), MarkRole.CLOSES
)
# Angular has only `x` codes: <x id="START_LINK"/>here<x id="CLOSE_LINK"/>.
_NAMED_ROLE = re.compile(r"(START|CLOSE)_([A-Z_]+?)(?:_\d+)?\Z")
_BLANK_LINES = re.compile(r"\A\s*\n\s*|(?<!\s)\s*\n\s*\Z")
_WRAPPED = re.compile(r"(?<![ \t])[ \t]*\n[ \t]+")  # tries a run of spaces only once
_ELEMENT = "element "  # begins the names of marks for tags of elements


class CodedText:
    """The content of an element: a text to translate, with inline codes."""

    def __init__(self, element: XmlElement, document: str) -> None:
        inner = document[element.inner_start : element.inner_end]
        self._is_cdata = is_cdata(inner)
        if self._is_cdata:
            pieces: Iterable[str | InlineMark] = split_message(unescape_text(inner))
            self._span = TextSpan(0, 0, [*pieces])
        else:
            pieces = _pieces([*_parts(element, document)], element, escape_text)
            self._span = TextSpan(0, 0, [*pieces], escape_text)
        self.fragment: Fragment = self._span.fragment

    def apply_translation(self, translation: str) -> str:
        """Return a translation as XML."""
        text = self._span.apply_translation(translation)
        return cdata_section(text) if self._is_cdata else text


def _pieces(
    parts: list[str | InlineMark], element: XmlElement, escape: Callable[[str], str]
) -> Iterator[str | InlineMark]:
    """Yield text and marks; opening marks are closed within the same element."""
    codes = [part for part in parts if isinstance(part, InlineMark)]
    code_ids = {*map(id, codes)}
    text = "".join(
        CODE if isinstance(part, InlineMark) else part.replace(CODE, " ") for part in parts
    )
    if element.inherited_attribute("xml:space") != "preserve":
        text = _WRAPPED.sub(" ", _BLANK_LINES.sub("", text))
    within: list[str] = [""]
    for piece in split_message(text, codes=codes):
        if isinstance(piece, str):
            yield piece
            continue
        raw = piece.raw if id(piece) in code_ids else escape(piece.raw)
        if piece.name.startswith(_ELEMENT):
            yield piece
            if piece.role is MarkRole.OPENS:
                within.append(piece.name)
            else:
                within.pop()
        else:
            yield replace(piece, raw=raw, name=f"{piece.name} in {within[-1]}")


def _parts(element: XmlElement, document: str) -> Iterator[str | InlineMark]:
    """Yield the content of an element: unescaped text, and codes as they are."""
    place = element.inner_start
    for child in element.children:
        if child.start < place:  # in protected content
            continue
        yield unescape_text(document[place : child.start])
        protected_end = _protected_end(child, element)
        place = protected_end or child.end
        if protected_end:
            raw = document[child.start : place]
            yield word_mark(raw, unescape_text(raw).strip())
        elif child.name in _PAIRS and not child.is_empty:
            name = f"{_ELEMENT}{child.start}"
            yield InlineMark(child.tag, MarkRole.OPENS, name)
            yield from _parts(child, document)
            yield InlineMark(child.end_tag, MarkRole.CLOSES, name)
        else:
            raw = document[child.start : place]
            yield InlineMark(raw, *_role(child), visible_text=_placeholder(child, raw))
    yield unescape_text(document[place : element.inner_end])


def _protected_end(child: XmlElement, parent: XmlElement) -> int | None:
    """Return the end of content that a child protects from translation; None if it does not."""
    attributes = child.attributes
    is_protected = attributes.get("translate") == "no" or attributes.get("its:translate") == "no"
    if child.name == "sm" and is_protected:
        ends = (end for end in parent.children if end.name == "em" and end.start > child.start)
        return next((end.end for end in ends if _key(end) == _key(child)), None)
    if child.name == "mrk" and (is_protected or attributes.get("mtype") == "protected"):
        return child.end
    return None


def _role(code: XmlElement) -> tuple[MarkRole, str]:
    if code.name in _ROLES:
        kind = "annotation" if code.name in ("sm", "em") else "code"
        return _ROLES[code.name], f"{kind} {_key(code)}"
    if code.name == "x" and (match := _NAMED_ROLE.match(code.attributes.get("id", ""))):
        return MarkRole.OPENS if match[1] == "START" else MarkRole.CLOSES, match[2]
    return MarkRole.STANDS, ""


def _placeholder(code: XmlElement, raw: str) -> str:
    """Return the placeholder that a code declares; else an empty text."""
    attributes = (code.attributes.get(name, "") for name in ("equiv-text", "equiv", "disp"))
    visible_text = next(
        (candidate.strip() for candidate in (unescape_text(raw), *attributes) if candidate.strip()),
        "",
    )
    return visible_text if is_placeholder(visible_text) else ""


def _key(code: XmlElement) -> str | None:
    """Return the key that both ends of a range share."""
    attributes = code.attributes
    return (
        attributes.get("startRef")
        or attributes.get("rid")
        or attributes.get("id")
        or attributes.get("i")
    )
