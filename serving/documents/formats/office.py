"""Holds what office documents share: an archive, in some parts of which there are paragraphs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from lxml import etree

from serving.documents.parts.inline import Fragment
from serving.documents.parts.package import Package
from serving.documents.parts.xml import parse_xml, written_xml
from serving.errors import RequestError

CONTENT_TYPES = "[Content_Types].xml"
_HARMLESS_LINKS = ("hyperlink", "video", "audio", "media")
_MACRO = "macroEnabled"


class Paragraph(Protocol):
    fragment: Fragment

    def write(self, translation: str) -> None: ...


class OfficeDocument:
    """Holds the paragraphs with words of an archive's parts."""

    def __init__(
        self,
        package: Package,
        parts: Sequence[str],
        paragraphs: Callable[[etree._Element], Iterable[Paragraph]],
    ) -> None:
        self._package = package
        self._parts: list[tuple[str, etree._ElementTree, list[Paragraph]]] = []
        for name in parts:
            tree = parse_xml(package.read(name), name)
            found = [each for each in paragraphs(tree.getroot()) if each.fragment.has_words]
            self._parts.append((name, tree, found))

    @property
    def fragments(self) -> Sequence[str]:
        return [each.fragment.xml for _, _, found in self._parts for each in found]

    def write(self, translations: Sequence[str], target: Path, language: str) -> None:
        waiting = iter(translations)
        changed: dict[str, bytes] = {}
        for name, tree, found in self._parts:
            for paragraph in found:
                paragraph.write(next(waiting))
            if found:
                changed[name] = written_xml(tree)
        self._package.write(target, changed)


def open_package(path: Path, main_type: str) -> tuple[Package, Mapping[str, str]]:
    """Open a document of Office Open XML.

    Returns the content type of each part by the part's name. Raises RequestError for another kind
    of document than its main part's type says, for macros, and for what readers would fetch.
    """
    package = Package(path)
    types = _content_types(package)
    if any(_MACRO in each for each in types.values()):
        raise RequestError("file", path.name, "has macros; documents with macros are refused")
    if not any(each.endswith(main_type + ".main+xml") for each in types.values()):
        message = f"is not what its name says: it holds no {main_type}"
        raise RequestError("file", path.name, message)
    for name in package.names:
        if name.endswith(".rels"):
            _check_links(parse_xml(package.read(name), name).getroot(), name)
    return package, types


def parts_of(types: Mapping[str, str], *ends: str) -> list[str]:
    """Return the names of all parts whose types end so, in a fixed order."""
    return sorted(name for name, each in types.items() if each.endswith(ends))


def _content_types(package: Package) -> dict[str, str]:
    root = parse_xml(package.read(CONTENT_TYPES), CONTENT_TYPES).getroot()
    by_extension = {
        each.get("Extension", "").lower(): each.get("ContentType", "")
        for each in root.iterfind("{*}Default")
    }
    by_name = {
        each.get("PartName", "").removeprefix("/"): each.get("ContentType", "")
        for each in root.iterfind("{*}Override")
    }
    return {
        name: by_name.get(name) or by_extension.get(name.rpartition(".")[2].lower(), "")
        for name in package.names
    }


def _check_links(root: etree._Element, name: str) -> None:
    for link in root.iterfind("{*}Relationship"):
        kind = link.get("Type", "").rpartition("/")[2]
        is_outside = link.get("TargetMode") == "External" and is_remote(link.get("Target", ""))
        if is_outside and kind not in _HARMLESS_LINKS:
            message = f"in {name} would be loaded from outside, as {kind}: that is refused"
            raise RequestError("file", link.get("Target"), message)


def is_remote(target: str) -> bool:
    """Check whether whoever opens a reference would ask another machine."""
    return target.lower().startswith(("http:", "https:", "ftp:", "smb:", "\\\\", "//", "file://"))
