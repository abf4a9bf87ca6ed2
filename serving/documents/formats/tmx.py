"""Read and write TMX: units that lack the target language get it, others stay (TMX 1.4b)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from serving.documents.document import Document
from serving.documents.encoding import TextFile
from serving.documents.formats.inline_codes import CodedText
from serving.documents.spans import apply_edits
from serving.documents.xml_elements import XmlElement, blank_before, read_xml
from serving.errors import RequestError
from serving.text.languages import match_codes
from serving.translation_memory.tmx import declared_source, find_variant, variant_language


@dataclass(frozen=True)
class _OpenUnit:
    """A `tu` without the target language.

    variant: its `tuv` in the source language. segment: the `seg` of that.
    """

    element: XmlElement
    variant: XmlElement
    segment: XmlElement
    text: CodedText


class TmxDocument:
    def __init__(self, file: TextFile, units: Sequence[_OpenUnit]) -> None:
        self._file, self._units = file, units

    @property
    def fragments(self) -> Sequence[str]:
        return [unit.text.fragment.xml for unit in self._units]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        edits = []
        for unit, translation in zip(self._units, translations, strict=True):
            place = _variants(unit.element)[-1].end
            new = _new_variant(
                unit, unit.text.apply_translation(translation), language, self._file.text
            )
            edits.append((place, place, new))
        self._file.write(apply_edits(self._file.text, edits), target)


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
) -> Iterator[_OpenUnit]:
    elements = [element for element in root.walk() if element.name == "tu" and _variants(element)]
    codes = {code for element in elements for code in _languages(element)}
    if source is None or not match_codes(source, tuple(sorted(codes))):
        header = root.child("header")
        source = declared_source(header.attributes) if header else None
    for element in elements:
        languages = _languages(element)
        if len(languages) > 1 if target is None else match_codes(target, languages):
            continue
        variant = _source_variant(element, declared_source(element.attributes) or source)
        segment = variant.child("seg") if variant else None
        if variant is None or segment is None:
            continue
        text = CodedText(segment, document)
        if text.fragment.has_words:
            yield _OpenUnit(element, variant, segment, text)


def _variants(unit: XmlElement) -> list[XmlElement]:
    return [child for child in unit.children if child.name == "tuv"]


def _languages(unit: XmlElement) -> tuple[str, ...]:
    return tuple(variant_language(variant.attributes) for variant in _variants(unit))


def _source_variant(unit: XmlElement, language: str | None) -> XmlElement | None:
    """Return the variant in a language; the first one if the language is not known."""
    languages = _languages(unit)
    code = languages[0] if language is None else find_variant(language, languages)
    return None if code is None else _variants(unit)[languages.index(code)]


def _new_variant(unit: _OpenUnit, text: str, language: str, document: str) -> str:
    """Return a variant that is laid out as the source is."""
    variant, segment = unit.variant, unit.segment
    name = (
        "lang"
        if "xml:lang" not in variant.attributes and "lang" in variant.attributes
        else "xml:lang"
    )
    tag = f"<{variant.prefix}tuv {name}={quoteattr(language)}>"
    inner = blank_before(segment, document) + segment.tag + text + segment.end_tag
    before, after = blank_before(variant, document), document[segment.end : variant.inner_end]
    return before + tag + inner + after * after.isspace() + variant.end_tag
