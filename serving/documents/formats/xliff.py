"""Reads and writes XLIFF 1.2 and 2.0: sources without a translation get one, with their codes.

All else stays to the character.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from serving.documents.document import Document
from serving.documents.formats.xliff_text import XliffText
from serving.documents.parts.encoding import XML_DECLARATION, TextFile, read_text
from serving.documents.parts.spans import Edit, edited
from serving.documents.parts.xml import parse_xml
from serving.documents.parts.xml_text import XmlElement, root_of, text_within
from serving.errors import RequestError

# Nobody has translated what has such a state.
_UNTRANSLATED = frozenset({"new", "needs-translation", "initial"})
_DECLARATION = re.compile(r"\A\s*<\?xml\s.*?\?>", re.DOTALL)


@dataclass(frozen=True)
class _Unit:
    """Holds a `trans-unit` of 1.2 or a `segment` of 2.0.

    source: its source, or its `seg-source`. texts: of the source, or of the `mrk` of `seg-source`,
    by their elements.
    """

    element: XmlElement
    source: XmlElement
    texts: Mapping[XmlElement, XliffText]


class XliffDocument:
    def __init__(self, file: TextFile, root: XmlElement) -> None:
        self._file, self._root = file, root
        self._units = [*_units(root, file.text)]

    @property
    def fragments(self) -> Sequence[str]:
        return [text.fragment.xml for unit in self._units for text in unit.texts.values()]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        edits = [*_language_edits(self._root, language)]
        for unit in self._units:
            made = {each: text.translated(next(waiting)) for each, text in unit.texts.items()}
            inner = _inner_of_target(unit, made, self._file.text)
            edits += _target_edits(unit, inner, language, self._file.text)
        self._file.write(edited(self._file.text, edits), target)


def read(path: Path) -> Document:
    """Raises RequestError."""
    parse_xml(path.read_bytes(), path.name)
    file = read_text(path, None, XML_DECLARATION).with_line_feeds()
    parse_xml(_DECLARATION.sub("", file.text).encode(), path.name)  # if read in another encoding
    root = root_of(file.text)
    if root.name != "xliff" or not root.attributes.get("version", "").startswith(("1.", "2.")):
        raise RequestError("file", path.name, "is not what its name says: no XLIFF 1 or 2")
    return XliffDocument(file, root)


def _units(root: XmlElement, document: str) -> Iterator[_Unit]:
    for element in root.walk():
        if element.name not in ("trans-unit", "segment") or element.prefix != root.prefix:
            continue
        source = element.child("source")
        if source is None or not _may_be_translated(element):
            continue
        parted = element.child("seg-source")
        if parted is not None and _marks(parted):
            source, wanted = parted, _untranslated_marks(element, parted, document)
        else:
            wanted = [] if _is_translated(element, document) else [source]
        found = {each: XliffText(each, document) for each in wanted}
        with_words = {each: text for each, text in found.items() if text.fragment.has_words}
        if with_words:
            yield _Unit(element, source, with_words)


def _may_be_translated(element: XmlElement) -> bool:
    says = element.inherited("translate") or "yes"
    return says != "no" and element.attributes.get("approved") != "yes"


def _is_translated(element: XmlElement, document: str) -> bool:
    """Check for a translation that somebody has made."""
    target = element.child("target")
    if target is None or not _has_text(target, document):
        return False
    state = target.attributes.get("state") or element.attributes.get("state")
    return state not in _UNTRANSLATED


def _has_text(element: XmlElement, document: str) -> bool:
    return bool(text_within(document[element.inner_start : element.inner_end]).strip())


def _marks(element: XmlElement) -> list[XmlElement]:
    """Return the elements that part a text into sentences."""
    return [
        each
        for each in element.walk()
        if each.name == "mrk" and each.attributes.get("mtype") == "seg" and not each.is_empty
    ]


def _untranslated_marks(unit: XmlElement, parted: XmlElement, document: str) -> list[XmlElement]:
    if not _is_translated(unit, document):
        return _marks(parted)
    done = _translated_marks(unit, document)
    return [each for each in _marks(parted) if done and each.attributes.get("mid") not in done]


def _translated_marks(unit: XmlElement, document: str) -> dict[str, str]:
    """Return what the `mrk` of a target hold, by their `mid`."""
    target = unit.child("target")
    if target is None or not _is_translated(unit, document):
        return {}
    return {
        each.attributes.get("mid", ""): document[each.inner_start : each.inner_end]
        for each in _marks(target)
        if _has_text(each, document)
    }


def _inner_of_target(unit: _Unit, made: Mapping[XmlElement, str], document: str) -> str:
    """Return what a target holds: a translation, or one in each `mrk` as `seg-source` has them."""
    source = unit.source
    if source in made:
        return made[source]
    done = _translated_marks(unit.element, document)
    edits: list[Edit] = []
    for mark in _marks(source):
        new = made.get(mark) or done.get(mark.attributes.get("mid", ""))
        if new is not None:
            start = source.inner_start
            edits.append((mark.inner_start - start, mark.inner_end - start, new))
    return edited(document[source.inner_start : source.inner_end], edits)


def _target_edits(unit: _Unit, inner: str, language: str, document: str) -> Iterator[Edit]:
    """Yield what changes in a unit; a new target follows the source, as the schemas want it."""
    element, target = unit.element, unit.element.child("target")
    is_of_2 = element.name == "segment"
    says: dict[str, str | None] = {}
    if is_of_2:
        changed = element.with_attributes({"state": "translated", "subState": None})
        yield element.start, element.inner_start, changed
    else:
        says = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
    if target is not None:
        tag = target.with_attributes(says)
        tag = tag.removesuffix("/>").rstrip() + ">" if target.is_empty else tag
        yield target.start, target.end, tag + inner + target.end_tag
        return
    name = f"{unit.source.prefix}target"
    own = unit.source.attributes
    says |= {"xml:lang": language} if "xml:lang" in own else {}
    says |= {"xml:space": own["xml:space"]} if "xml:space" in own else {}
    tag = "".join(
        [f"<{name}", *(f" {key}={quoteattr(value or '')}" for key, value in says.items())]
    )
    place = unit.source.end
    yield place, place, f"{_indent(unit, document)}{tag}>{inner}</{name}>"


def _indent(unit: _Unit, document: str) -> str:
    """Return the white space before a source, if that begins a line."""
    before = document[unit.element.start : unit.source.start]
    blank = before[len(before.rstrip()) :]
    return blank if "\n" in blank else ""


def _language_edits(root: XmlElement, language: str) -> Iterator[Edit]:
    is_of_2 = root.attributes.get("version", "").startswith("2.")
    files = [each for each in root.children if each.name == "file"]
    name, elements = ("trgLang", [root]) if is_of_2 else ("target-language", files)
    for element in elements:
        if not element.attributes.get(name):
            yield element.start, element.inner_start, element.with_attributes({name: language})
