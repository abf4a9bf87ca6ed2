"""Read and write TMX: units that lack the target language get it, others stay (TMX 1.4b)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from serving.documents.encoding import TextFile
from serving.documents.formats.inline_codes import CodedText
from serving.documents.fragment import Document
from serving.documents.spans import edited
from serving.documents.xml_elements import XmlElement, blank_before, read_xml
from serving.errors import RequestError
from serving.text.languages import match_codes

_ANY_LANGUAGE = "*all*"
_LANGUAGE_NAMES = ("xml:lang", "lang")  # the second until TMX 1.3


@dataclass(frozen=True)
class _Unit:
    """A `tu` without the target language.

    variant: its `tuv` in the source language. segment: the `seg` of that.
    """

    element: XmlElement
    variant: XmlElement
    segment: XmlElement
    text: CodedText


class TmxDocument:
    def __init__(self, file: TextFile, units: Sequence[_Unit]) -> None:
        self._file, self._units = file, units

    @property
    def fragments(self) -> Sequence[str]:
        return [unit.text.fragment.xml for unit in self._units]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        edits = []
        for unit, translation in zip(self._units, translations, strict=True):
            place = _variants(unit.element)[-1].end
            new = _new_variant(unit, unit.text.translated(translation), language, self._file.text)
            edits.append((place, place, new))
        self._file.write(edited(self._file.text, edits), target)


def read_tmx(path: Path, source: str | None = None, target: str | None = None) -> Document:
    """Read a translation memory. Raises RequestError.

    source, target: languages. Without a source it is what the file says; without a target only
    units in one language have fragments.
    """
    file, root = read_xml(path.read_bytes(), path.name)
    if root.name != "tmx" or root.child("body") is None:
        raise RequestError("file", path.name, "is not what its name says: no TMX")
    return TmxDocument(file, [*_units(root, source, target, file.text)])


def _units(
    root: XmlElement, source: str | None, target: str | None, document: str
) -> Iterator[_Unit]:
    elements = [each for each in root.walk() if each.name == "tu" and _variants(each)]
    known = {_language(variant) for each in elements for variant in _variants(each)}
    if source is None or not match_codes(source, tuple(sorted(known))):
        header = root.child("header")
        source = header.attributes.get("srclang") if header else None
    for element in elements:
        languages = tuple(map(_language, _variants(element)))
        if len(languages) > 1 if target is None else match_codes(target, languages):
            continue
        variant = _of_language(element, element.attributes.get("srclang") or source)
        segment = variant.child("seg") if variant else None
        if variant is None or segment is None:
            continue
        text = CodedText(segment, document)
        if text.fragment.has_words:
            yield _Unit(element, variant, segment, text)


def _variants(unit: XmlElement) -> list[XmlElement]:
    return [each for each in unit.children if each.name == "tuv"]


def _language(variant: XmlElement) -> str:
    said = (variant.attributes.get(name) for name in _LANGUAGE_NAMES)
    return next(filter(None, said), "")


def _of_language(unit: XmlElement, language: str | None) -> XmlElement | None:
    """Return the variant in a language; the first one if the language is not known."""
    variants = _variants(unit)
    if language in (None, "", _ANY_LANGUAGE):
        return variants[0]
    found = match_codes(language or "", tuple(map(_language, variants)))
    return next((each for each in variants if _language(each) in found[:1]), None)


def _new_variant(unit: _Unit, text: str, language: str, document: str) -> str:
    """Return a variant that is laid out as the source is."""
    variant, segment = unit.variant, unit.segment
    name = next((each for each in _LANGUAGE_NAMES if each in variant.attributes), "xml:lang")
    tag = f"<{variant.prefix}tuv {name}={quoteattr(language)}>"
    inner = blank_before(segment, document) + segment.tag + text + segment.end_tag
    before, after = blank_before(variant, document), document[segment.end : variant.inner_end]
    return before + tag + inner + after * after.isspace() + variant.end_tag
