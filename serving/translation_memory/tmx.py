"""Read and write TMX 1.4 (LISA OSCAR, 2005): translation memories, unit by unit.

Documents in TMX, which keep all that is not translated, ask here for what TMX means, too: languages
and which variant is the source (`serving/documents/formats/tmx.py`).
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from lxml import etree

from serving.errors import RequestError
from serving.pipelines.translation.memory import InlineCode, SegmentPart
from serving.text.languages import match_codes
from serving.text.markup.tokens import Role

# As libraries name it, and as it is written; without a prefix until TMX 1.3.
_LANGUAGE_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "xml:lang", "lang")
_ANY_LANGUAGE = "*all*"
_MAX_SEGMENT_CHARACTERS = 20_000
_LANGUAGE_CODE = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8}){0,4}")
_PLACEHOLDERS = ("ph", "it", "ut")  # inline elements that stand for a code between words
_HEADER = """<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="Attendant" creationtoolversion="1" segtype="sentence" o-tmf="Attendant" \
adminlang="en" srclang={source} datatype="plaintext"/>
<body>
"""
TMX_END = "</body>\n</tmx>\n"


@dataclass(frozen=True, slots=True)
class MemorySegment:
    """One side of a translation unit.

    text: without inline codes. xml: the content of its `seg`, where it has inline codes.
    """

    text: str
    xml: str | None = None


@dataclass(frozen=True, slots=True)
class TranslationUnit:
    """A translation unit. targets: by language code, in small letters."""

    source: MemorySegment
    targets: dict[str, MemorySegment]


def variant_language(attributes: Mapping[str, str]) -> str:
    """Return the language of a `tuv` as it is written; empty if it has none."""
    for name in _LANGUAGE_ATTRIBUTES:
        if language := attributes.get(name):
            return language
    return ""


def declared_source(attributes: Mapping[str, str]) -> str | None:
    """Return the source language that a `header` or a `tu` declares; None if that is any."""
    language = attributes.get("srclang", _ANY_LANGUAGE)
    return None if language in ("", _ANY_LANGUAGE) else language


def find_variant(language: str, codes: tuple[str, ...]) -> str | None:
    """Return the code of the variant in a language, else in another variety of it; None if there is
    none.
    """
    if language in codes:
        return language
    primary = language.lower().partition("-")[0]
    varieties = (code for code in codes if code.lower().partition("-")[0] == primary)
    return next(iter((*match_codes(language, codes), *varieties)), None)


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

    def units(self) -> Iterator[TranslationUnit]:
        """Yield the units. Raises RequestError, with the line, for a file that is not TMX.

        lxml's parser reads a file of half a gigabyte in 61 MB of memory; places in the text, which
        documents need, it does not know.
        """
        with self.path.open("rb") as file:
            events = etree.iterparse(
                file,
                ("start", "end"),
                tag=("tmx", "header", "tu"),
                resolve_entities=False,
                no_network=True,
            )
            try:
                yield from self._read_units(iter(events))
            except etree.XMLSyntaxError as error:
                message = (error.msg or "").partition(", line")[0]
                line = error.lineno or 1
                raise self._error(line, f"is not well-formed XML: {message}") from None

    def _read_units(self, events: Iterator[tuple[str, Any]]) -> Iterator[TranslationUnit]:
        _, root = next(events, ("", None))
        if root is None or root.tag != "tmx":
            raise self._error(1, "is not TMX: it has no tmx element")
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
                _free_memory(element)

    def _check_entities(self, root: Any) -> None:
        if any(True for _ in islice(root.getroottree().docinfo.internalDTD.iterentities(), 1)):
            raise self._error(1, "must not declare entities")

    def _read_header(self, header: Any) -> None:
        if (language := declared_source(header.attrib)) is not None:
            self.source_language = self._check_language(language, header)

    def _unit(self, element: Any) -> TranslationUnit | None:
        """Return a unit; None if it has no source, or no target."""
        segments = dict(self._segments(element))
        if not segments:
            return None
        if self.source_language is None:
            self.source_language = next(iter(segments))
        source = find_variant(self.source_language, tuple(segments))
        targets = {code: segment for code, segment in segments.items() if code != source}
        if source is None or not targets:
            return None
        return TranslationUnit(segments[source], targets)

    def _segments(self, element: Any) -> Iterator[tuple[str, MemorySegment]]:
        for variant in element.iterchildren("tuv"):
            language = variant_language(variant.attrib)
            if not language:
                raise self._error(variant.sourceline, "has a tuv without xml:lang")
            seg = variant.find("seg")
            if seg is None:
                raise self._error(variant.sourceline, "has a tuv without a seg")
            segment = self._segment(seg)
            if segment.text:
                yield self._check_language(language, variant), segment

    def _segment(self, seg: Any) -> MemorySegment:
        if any(node.tag is etree.Entity for node in seg.iter()):
            raise self._error(seg.sourceline, "must not use entities that it declares")
        text = normalize_segment("".join(_text_pieces(seg)))
        if len(text) > _MAX_SEGMENT_CHARACTERS:
            message = f"has a segment of more than {_MAX_SEGMENT_CHARACTERS} characters"
            raise self._error(seg.sourceline, message)
        return MemorySegment(text, _inner_xml(seg) if len(seg) else None)

    def _check_language(self, code: str, element: Any) -> str:
        if not _LANGUAGE_CODE.fullmatch(code):
            raise self._error(element.sourceline, f"has the language {code!r}, which is no code")
        return code.lower().replace("_", "-")

    def _error(self, line: int, message: str) -> RequestError:
        return RequestError("file", self.name, f"line {line} {message}")


def normalize_segment(text: str) -> str:
    """Return a text in Unicode's form C with single spaces, as segments are compared."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _text_pieces(element: Any) -> Iterator[str]:
    """Yield the text of a seg without its inline codes."""
    yield element.text or ""
    for child in element:
        if child.tag == "hi":
            yield from _text_pieces(child)
        yield child.tail or ""


def _inner_xml(seg: Any) -> str:
    children = (etree.tostring(child, encoding="unicode") for child in seg)
    return escape(seg.text or "") + "".join(children)


def _free_memory(element: Any) -> None:
    """Free the memory of an element that was read, and of what is before it."""
    element.clear()
    while element.getprevious() is not None:
        del element.getparent()[0]


def parse_inline_codes(xml: str) -> tuple[SegmentPart, ...]:
    """Return the content of a `seg` as text and inline codes, in order."""
    root = etree.fromstring(f"<seg>{xml}</seg>", etree.XMLParser(resolve_entities=False))
    return tuple(part for part in _segment_parts(root, {}) if part)


def _segment_parts(element: Any, keys: dict[str, str]) -> Iterator[SegmentPart]:
    """keys: of opening codes, by the number that pairs them within the segment."""
    yield element.text or ""
    for child in element:
        pair = child.get("i", "")
        key = child.get("x") or pair
        if child.tag == "hi":
            yield InlineCode(Role.OPEN, f"hi {key}")
            yield from _segment_parts(child, keys)
            yield InlineCode(Role.CLOSE, f"hi {key}")
        elif child.tag == "bpt":
            keys[pair] = f"pair {key}"
            yield InlineCode(Role.OPEN, keys[pair])
        elif child.tag == "ept":
            yield InlineCode(Role.CLOSE, keys.get(pair, f"pair {key}"))
        elif child.tag in _PLACEHOLDERS:
            yield InlineCode(Role.POINT, key)
        yield child.tail or ""


def write_tmx(source_language: str, units: Iterable[TranslationUnit]) -> Iterator[str]:
    """Yield a TMX file in pieces."""
    yield tmx_header(source_language)
    for unit in units:
        yield format_unit(source_language, unit)
    yield TMX_END


def tmx_header(source_language: str) -> str:
    """Return what stands before the units of a file; after them stands `TMX_END`."""
    return _HEADER.format(source=quoteattr(source_language))


def format_unit(source_language: str, unit: TranslationUnit) -> str:
    variants = {source_language: unit.source, **unit.targets}
    return f"<tu>{''.join(_format_variant(*variant) for variant in variants.items())}</tu>\n"


def _format_variant(language: str, segment: MemorySegment) -> str:
    content = escape(segment.text) if segment.xml is None else segment.xml
    return f"<tuv xml:lang={quoteattr(language)}><seg>{content}</seg></tuv>"
