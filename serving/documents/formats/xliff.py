"""Reads and writes XLIFF 1.2 and 2.0: sources without a translation get one, with their codes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.parts.mixed import MixedParagraph
from serving.documents.parts.xml import parse_xml, written_xml
from serving.errors import RequestError

Element = etree._Element
_PAIRS = frozenset({"g", "mrk", "pc"})
_SETTLED = frozenset({"translated", "final", "signed-off", "reviewed"})


@dataclass(frozen=True)
class _Unit:
    """Holds a `trans-unit` of 1.2 or a `segment` of 2.0, and its source."""

    element: Element
    source: Element
    text: MixedParagraph


class XliffDocument:
    def __init__(self, tree: etree._ElementTree, units: Sequence[_Unit]) -> None:
        self._tree = tree
        self._units = [unit for unit in units if unit.text.fragment.has_words]

    @property
    def fragments(self) -> Sequence[str]:
        return [unit.text.fragment.xml for unit in self._units]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        for unit, translation in zip(self._units, translations, strict=True):
            unit.text.write(translation, _target_of(unit))
        _say_language(self._tree.getroot(), language)
        target.write_bytes(written_xml(self._tree))


def read(path: Path) -> Document:
    """Raises RequestError."""
    tree = parse_xml(path.read_bytes(), path.name)
    root = tree.getroot()
    version = root.get("version", "")
    if etree.QName(root).localname != "xliff" or not version.startswith(("1.", "2.")):
        raise RequestError("file", path.name, "is not what its name says: no XLIFF 1 or 2")
    return XliffDocument(tree, [*_units(root)])


def _units(root: Element) -> Iterator[_Unit]:
    for element in root.iter("{*}trans-unit", "{*}segment"):
        source = element.find("{*}source")
        if source is not None and _is_wanted(element):
            yield _Unit(element, source, MixedParagraph(source, _is_pair))


def _is_pair(element: Element) -> bool:
    return etree.QName(element).localname in _PAIRS


def _is_wanted(element: Element) -> bool:
    """Leave what is not to be translated, and what has a translation that somebody stands by."""
    said = [each.get("translate") for each in (element, *element.iterancestors())]
    if next((value for value in said if value), "yes") == "no" or element.get("approved") == "yes":
        return False
    target = element.find("{*}target")
    if target is None or not "".join(map(str, target.itertext())).strip():
        return True
    state = target.get("state") or element.get("state")
    return state is not None and state not in _SETTLED


def _target_of(unit: _Unit) -> Element:
    """Return the unit's target; a new one follows the source, as the schemas want it."""
    target = unit.element.find("{*}target")
    if target is None:
        name = etree.QName(etree.QName(unit.source).namespace, "target")
        target = unit.element.makeelement(name)
        place = unit.element.find("{*}seg-source")
        previous = unit.source if place is None else place
        previous.addnext(target)
        target.tail, previous.tail = previous.tail, previous.tail
    if etree.QName(unit.element).localname == "segment":
        unit.element.set("state", "translated")
        unit.element.attrib.pop("subState", "")
    else:
        target.set("state", "needs-review-translation")
        target.set("state-qualifier", "mt-suggestion")
    return target


def _say_language(root: Element, language: str) -> None:
    is_new = root.get("version", "").startswith("2.")
    name, elements = ("trgLang", [root]) if is_new else ("target-language", root.findall("{*}file"))
    for element in elements:
        if not element.get(name):
            element.set(name, language)
