"""Read and write translation memories as TMX 1.4 (LISA OSCAR, 2005), unit by unit."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from serving.errors import RequestError
from serving.pipelines.translation.memory import InlineCode, SegmentPart
from serving.text.markup.tokens import Role

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_ANY = "*all*"
_MAX_SEGMENT_CHARACTERS = 20_000
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,4}")
_PLACEHOLDERS = ("ph", "it", "ut")  # inline elements that stand for a code between words


@dataclass(frozen=True, slots=True)
class Segment:
    """One side of a translation unit.

    text: without inline codes. xml: the content of its `seg`, where it has inline codes.
    """

    text: str
    xml: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """A translation unit. targets: by language code, in small letters."""

    source: Segment
    targets: dict[str, Segment]


@dataclass
class TmxFile:
    """A TMX file that is read in pieces.

    name: in errors.
    source_language: of the header, or of the first unit where that allows any; None until the
        first unit was read.
    num_skipped: units without a source or a target so far.
    """

    path: Path
    name: str
    source_language: str | None = None
    num_skipped: int = 0

    def units(self) -> Iterator[Unit]:
        """Yield the units. Raises RequestError, with the line, for a file that is not TMX."""
        with self.path.open("rb") as file:
            events = etree.iterparse(
                file,
                ("start", "end"),
                tag=("tmx", "header", "tu"),
                resolve_entities=False,
                no_network=True,
            )
            try:
                yield from self._read(iter(events))
            except etree.XMLSyntaxError as error:
                message = (error.msg or "").partition(", line")[0]
                line = error.lineno or 1
                raise self._wrong(line, f"is not well-formed XML: {message}") from None

    def _read(self, events: Iterator[tuple[str, Any]]) -> Iterator[Unit]:
        _, root = next(events, ("", None))
        if root is None or root.tag != "tmx":
            raise self._wrong(1, "is not TMX: it has no tmx element")
        if root.getroottree().docinfo.internalDTD is not None:
            self._check_entities(root)
        for event, element in events:
            if event != "end":
                continue
            if element.tag == "header":
                self._read_header(element)
            elif element.tag == "tu":
                unit = self._unit(element)
                if unit is None:
                    self.num_skipped += 1
                else:
                    yield unit
                _forget(element)

    def _check_entities(self, root: Any) -> None:
        if any(True for _ in islice(root.getroottree().docinfo.internalDTD.iterentities(), 1)):
            raise self._wrong(1, "must not declare entities")

    def _read_header(self, header: Any) -> None:
        language = header.get("srclang", _ANY)
        if language != _ANY:
            self.source_language = self._checked_language(language, header)

    def _unit(self, element: Any) -> Unit | None:
        """Return a unit; None if it has no source, or no target."""
        segments = dict(self._segments(element))
        if not segments:
            return None
        if self.source_language is None:
            self.source_language = next(iter(segments))
        own = _of_language(self.source_language, segments)
        targets = {code: each for code, each in segments.items() if code != own}
        if own is None or not targets:
            return None
        return Unit(segments[own], targets)

    def _segments(self, element: Any) -> Iterator[tuple[str, Segment]]:
        for variant in element.iterchildren("tuv"):
            language = variant.get(_LANGUAGE) or variant.get("lang")  # TMX 1.1 had the latter
            if not language:
                raise self._wrong(variant.sourceline, "has a tuv without xml:lang")
            seg = variant.find("seg")
            if seg is None:
                raise self._wrong(variant.sourceline, "has a tuv without a seg")
            segment = self._segment(seg)
            if segment.text:
                yield self._checked_language(language, variant), segment

    def _segment(self, seg: Any) -> Segment:
        if any(each.tag is etree.Entity for each in seg.iter()):
            raise self._wrong(seg.sourceline, "must not use entities that it declares")
        text = normalised("".join(_texts(seg)))
        if len(text) > _MAX_SEGMENT_CHARACTERS:
            message = f"has a segment of more than {_MAX_SEGMENT_CHARACTERS} characters"
            raise self._wrong(seg.sourceline, message)
        return Segment(text, _inner_xml(seg) if len(seg) else None)

    def _checked_language(self, code: str, element: Any) -> str:
        if not _LANGUAGE_CODE.fullmatch(code):
            raise self._wrong(element.sourceline, f"has the language {code!r}, which is no code")
        return code.lower().replace("_", "-")

    def _wrong(self, line: int, message: str) -> RequestError:
        return RequestError("file", self.name, f"line {line} {message}")


def normalised(text: str) -> str:
    """Return a text in Unicode's form C with single spaces, as segments are compared."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _of_language(code: str, segments: dict[str, Segment]) -> str | None:
    """Return the code of the segment in a language, or in another variety of it."""
    if code in segments:
        return code
    primary = code.partition("-")[0]
    return next((each for each in segments if each.partition("-")[0] == primary), None)


def _texts(element: Any) -> Iterator[str]:
    """Yield the text of a seg without its inline codes."""
    yield element.text or ""
    for child in element:
        if child.tag == "hi":
            yield from _texts(child)
        yield child.tail or ""


def _inner_xml(seg: Any) -> str:
    children = (etree.tostring(child, encoding="unicode") for child in seg)
    return escape(seg.text or "") + "".join(children)


def _forget(element: Any) -> None:
    """Free the memory of an element that was read, and of what is before it."""
    element.clear()
    while element.getprevious() is not None:
        del element.getparent()[0]


def inline_codes(xml: str) -> tuple[SegmentPart, ...]:
    """Return the content of a `seg` as text and inline codes, in order."""
    root = etree.fromstring(f"<seg>{xml}</seg>", etree.XMLParser(resolve_entities=False))
    return tuple(part for part in _parts(root, {}) if part)


def _parts(element: Any, keys: dict[str, str]) -> Iterator[SegmentPart]:
    """keys: of opening codes, by the number that pairs them within the segment."""
    yield element.text or ""
    for child in element:
        pair = child.get("i", "")
        key = child.get("x") or pair
        if child.tag == "hi":
            yield InlineCode(Role.OPEN, f"hi {key}")
            yield from _parts(child, keys)
            yield InlineCode(Role.CLOSE, f"hi {key}")
        elif child.tag == "bpt":
            keys[pair] = f"pair {key}"
            yield InlineCode(Role.OPEN, keys[pair])
        elif child.tag == "ept":
            yield InlineCode(Role.CLOSE, keys.get(pair, f"pair {key}"))
        elif child.tag in _PLACEHOLDERS:
            yield InlineCode(Role.POINT, key)
        yield child.tail or ""


_HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="Attendant" creationtoolversion="1" segtype="sentence" o-tmf="Attendant" \
adminlang="en" srclang={source} datatype="plaintext"/>
<body>
"""
END = "</body>\n</tmx>\n"


def written(source_language: str, units: Iterable[Unit]) -> Iterator[str]:
    """Yield a TMX file in pieces."""
    yield begun(source_language)
    for unit in units:
        yield written_unit(source_language, unit)
    yield END


def begun(source_language: str) -> str:
    """Return what stands before the units of a file; after them stands `END`."""
    return _HEADER.format(source=quoteattr(source_language))


def written_unit(source_language: str, unit: Unit) -> str:
    variants = {source_language: unit.source, **unit.targets}
    return f"<tu>{''.join(_variant(*each) for each in variants.items())}</tu>\n"


def _variant(language: str, segment: Segment) -> str:
    content = escape(segment.text) if segment.xml is None else segment.xml
    return f"<tuv xml:lang={quoteattr(language)}><seg>{content}</seg></tuv>"
