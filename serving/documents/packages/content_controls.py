"""Content controls of Word that show a text which is stored elsewhere: in the properties of the
document, or in XML that somebody has added to it.

Word shows the stored text again when it opens the document (ECMA-376, part 1, 17.5.2.6). So the
stored text is translated, once, and each of its controls gets the translation. Names and dates stay
in both places.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lxml import etree

from serving.documents.fragment import Fragment
from serving.documents.packages.office import (
    ElementText,
    PackagePart,
    ZipPackage,
    keep_with_words,
    parts_of_type,
    read_relations,
)
from serving.documents.packages.ranges import local_name
from serving.documents.xml_trees import parse_xml, set_text
from serving.errors import RequestError

Element = etree._Element
_CORE_ID = "{6C3C8BC8-F283-45AE-878A-BAB7291924A1}"
_APP_ID = "{6668398D-A668-4E3E-A5EB-62B293D839F1}"
_BUILT_IN = {_CORE_ID: "core-properties+xml", _APP_ID: "extended-properties+xml"}
# Properties that are no language: names, addresses, dates and numbers.
_NON_TRANSLATABLE = frozenset(
    {
        *("Company", "CompanyAddress", "CompanyEmail", "CompanyFax", "CompanyPhone"),
        *("created", "creator", "identifier", "language", "lastModifiedBy", "Manager", "modified"),
        *("PublishDate", "revision", "version"),
    }
)
_OTHER_KINDS = frozenset({"checkbox", "comboBox", "date", "dropDownList", "picture"})
_STEP = re.compile(r"/(?:([\w.-]+):)?([\w.-]+)(?:\[(\d+)\])?")
_PREFIX = re.compile(r"xmlns:([\w.-]+)\s*=\s*(?:'([^']*)'|\"([^\"]*)\")")


class StoredText:
    """A text that controls show."""

    def __init__(self, node: Element) -> None:
        self._text = ElementText(node)
        self._node = node
        self.controls: list[Element] = []
        self.fragment: Fragment = self._text.fragment

    def write(self, translation: str) -> None:
        self._text.write(translation)
        for control in self.controls:
            _show(control, self._node.text or "")


@dataclass
class _Store:
    """An XML part whose elements controls show."""

    name: str
    tree: etree._ElementTree
    texts: dict[Element, StoredText] = field(default_factory=dict)


class BoundControls:
    """The content controls of a document that stay until their stored text is translated.

    elements: these controls.
    """

    def __init__(self, package: ZipPackage, types: Mapping[str, str]) -> None:
        self._package = package
        self._names = _names_of_stores(package, types)
        self._stores: dict[str, _Store | None] = {}
        self.elements: frozenset[Element] = frozenset()

    def bind(self, root: Element) -> bool:
        """Find the controls of a part. Return whether any of them will show a translation."""
        num_shown = 0
        for control in root.iter("{*}sdt"):
            properties = next((child for child in control if local_name(child) == "sdtPr"), None)
            if properties is None or (stored := self._find_stored_text(properties)) is None:
                continue
            store, node = stored
            self.elements |= {control}
            kinds = {local_name(child) for child in properties}
            if kinds & _OTHER_KINDS or local_name(node) in _NON_TRANSLATABLE:
                continue
            store.texts.setdefault(node, StoredText(node)).controls.append(control)
            num_shown += 1
        return num_shown > 0

    def contain(self, paragraph: Element) -> bool:
        """Return whether a paragraph is in a bound control."""
        return bool(self.elements) and any(
            element in self.elements for element in paragraph.iterancestors()
        )

    def parts(self) -> Iterator[PackagePart]:
        """Yield the parts with the texts that the controls found so far show."""
        for store in self._stores.values():
            if store is not None:
                yield PackagePart(store.name, store.tree, keep_with_words(store.texts.values()))

    def _find_stored_text(self, properties: Element) -> tuple[_Store, Element] | None:
        """Return where the text of a control is stored; None if it is not, or is empty."""
        binding = next(properties.iter("{*}dataBinding"), None)
        if binding is None:
            return None
        fields = {str(name).rpartition("}")[2]: str(value) for name, value in binding.items()}
        prefixes = {
            prefix: one or other
            for prefix, one, other in _PREFIX.findall(fields.get("prefixMappings", ""))
        }
        for name in self._names.get(fields.get("storeItemID", "").upper(), ()):
            if (store := self._store(name)) is not None:
                node = _find_node(store.tree.getroot(), fields.get("xpath", ""), prefixes)
                if node is not None and (node.text or "").strip():
                    return store, node
        return None

    def _store(self, name: str) -> _Store | None:
        if name not in self._stores:
            try:
                tree = parse_xml(self._package.read(name), name)
                self._stores[name] = _Store(name, tree)
            except RequestError:
                self._stores[name] = None
        return self._stores[name]


def _names_of_stores(package: ZipPackage, types: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of parts by the ids that bindings have."""
    names = {identity: parts_of_type(types, kind) for identity, kind in _BUILT_IN.items()}
    for name in package.names:
        if not name.startswith("customXml/") or name.endswith(".rels"):
            continue
        for kind, properties in read_relations(package, name).values():
            if kind == "customXmlProps" and properties in package.names:
                root = parse_xml(package.read(properties), properties).getroot()
                ids = [str(value) for key, value in root.items() if str(key).endswith("}itemID")]
                names.setdefault("".join(ids).upper(), []).append(name)
    return names


def _find_node(root: Element, path: str, prefixes: Mapping[str, str]) -> Element | None:
    """Return the element at an absolute path of plain steps, as Word writes it; else None."""
    steps = [*_STEP.finditer(path)]
    if not steps or "".join(step[0] for step in steps) != path:
        return None
    siblings = [root]
    node: Element | None = None
    for step in steps:
        namespace = prefixes.get(step[1] or "", "")
        name = f"{{{namespace}}}{step[2]}" if namespace else step[2]
        matching = [sibling for sibling in siblings if sibling.tag == name]
        number = int(step[3] or 1)
        if not 1 <= number <= len(matching):
            return None
        node = matching[number - 1]
        siblings = [*node]
    return None if node is None or len(node) else node


def _show(control: Element, text: str) -> None:
    """Replace the text of a control, in the run that has it first."""
    content = next((child for child in control if local_name(child) == "sdtContent"), None)
    texts = [] if content is None else [*content.iter("{*}t")]
    if not texts:
        return
    first, *others = texts
    for other in others:
        other.text = ""
    run, name = first.getparent(), etree.QName(first)
    assert run is not None  # because it is in a control
    place = run.index(first)
    run.remove(first)
    for number, line in enumerate(re.split("\r\n?|\n", text)):
        if number:
            run.insert(place, etree.Element(f"{{{name.namespace}}}br"))
            place += 1
        element = etree.Element(name)
        set_text(element, line)
        run.insert(place, element)
        place += 1
