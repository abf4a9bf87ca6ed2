"""Read and write .idml: the stories of an InDesign document; its layout stays.

A story has ranges of paragraphs of one style, in which a `Br` ends a paragraph; within them are
ranges of characters of one style, which are its runs. Processing instructions stand for characters
such as a page number.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lxml import etree

from serving.documents.document import Document
from serving.documents.packages.office import OfficeDocument, Paragraph, ZipPackage, read_parts
from serving.documents.packages.run_pieces import ParagraphSchema, copy_shell
from serving.documents.packages.runs import RunParagraph
from serving.documents.xml_trees import parse_xml
from serving.errors import RequestError

Element = etree._Element
MEDIA_TYPE = "application/vnd.adobe.indesign-idml-package"
_MAP = "designmap.xml"
_PARAGRAPHS, _RUN, _TEXT, _END = "ParagraphStyleRange", "CharacterStyleRange", "Content", "Br"
_PROPERTIES = "Properties"
_LINE_SEPARATOR = "\u2028"  # breaks a line within a paragraph
_CONTAINERS = frozenset({"Change", "CrossReferenceSource", "HyperlinkTextSource", "XMLElement"})
# Names of elements while a paragraph is read.
_CODE, _LINE_BREAK = "code", "line-break"
_SCHEMA = ParagraphSchema(
    leading=frozenset({_PROPERTIES, "XMLAttribute"}),
    containers=_CONTAINERS,
    line_breaks=frozenset({_LINE_BREAK}),
    breaks=frozenset({_END}),
    marks_space=False,
    has_attributes=True,
    run=_RUN,
    properties=_PROPERTIES,
    text=_TEXT,
)


def read_idml(path: Path) -> Document:
    """Read an InDesign document. Raises RequestError."""
    package = ZipPackage(path)
    package.check_mimetype(MEDIA_TYPE, "IDML")
    stories = parse_xml(package.read(_MAP), _MAP).getroot().iterfind("{*}Story")
    names = [str(story.get("src", "")) for story in stories]
    if not names:
        raise RequestError("file", path.name, "has no stories, so no text")
    return OfficeDocument(package, read_parts(package, names, _paragraphs))


def _paragraphs(root: Element) -> Iterator[Paragraph]:
    for element in [*root.iter(_PARAGRAPHS)]:
        reader = _RangeReader()
        for paragraph in reader.split(element):
            yield RunParagraph(paragraph, _SCHEMA)
        reader.restore_names()


@dataclass
class _RangeReader:
    """Splits ranges so that each is one paragraph, and containers contain runs, not the reverse.

    renamed: elements that have another name until they are read, and their own.
    """

    renamed: list[tuple[Element, str]] = field(default_factory=list)

    def split(self, element: Element) -> list[Element]:
        """Split a range at the ends of its paragraphs."""
        children = [*self._split_children(element)]
        element[:] = []
        ranges = [element]
        for child in children:
            ranges[-1].append(child)
            if child.tag == _RUN and child[-1].tag == _END and child is not children[-1]:
                following = copy_shell(element, element.find(_PROPERTIES))
                ranges[-1].addnext(following)
                ranges.append(following)
        return ranges

    def restore_names(self) -> None:
        for element, name in self.renamed:
            element.tag = name

    def _split_children(self, parent: Element) -> Iterator[Element]:
        for child in [*parent]:
            if child.tag == _RUN:
                yield from self._parts_of_run(child)
            else:
                if self._contains_text(child):
                    child[:] = [*self._split_children(child)]
                yield child

    def _parts_of_run(self, run: Element) -> Iterator[Element]:
        """Yield runs, each until the end of a paragraph, and the containers between them."""
        properties = run.find(_PROPERTIES)
        part: Element | None = None
        for child in [*run]:
            if child is properties:
                continue
            if self._contains_text(child):
                yield self._split_container(child, copy_shell(run, properties))
                part = None
                continue
            if part is None:
                part = copy_shell(run, properties)
                yield part
            part.extend(self._parts_of_text(child) if child.tag == _TEXT else [child])
            part = None if child.tag == _END else part

    def _split_container(self, container: Element, run: Element) -> Element:
        leading = [child for child in container if child.tag in _SCHEMA.leading]
        run.extend([child for child in container if child.tag not in _SCHEMA.leading])
        container[:] = [*leading, *self._parts_of_run(run)]
        return container

    def _contains_text(self, element: Element) -> bool:
        """Return whether an element contains runs of the paragraph; deleted text is none of it."""
        if element.tag not in _CONTAINERS:
            return False
        has_paragraphs = next(element.iter(_PARAGRAPHS), None) is not None
        if has_paragraphs or element.get("ChangeType") == "DeletedText":
            self._rename(element, _CODE)
            return False
        return True

    def _parts_of_text(self, content: Element) -> Iterator[Element]:
        """Yield text, line breaks, and characters that processing instructions stand for."""
        yield from self._lines(content.text or "")
        for child in [*content]:
            text, child.tail = child.tail or "", None
            code = etree.Element(_TEXT)
            code.append(child)
            self._rename(code, _CODE)
            yield code
            yield from self._lines(text)

    def _lines(self, text: str) -> Iterator[Element]:
        for part in re.split(f"({_LINE_SEPARATOR})", text):
            element = etree.Element(_TEXT)
            element.text = part
            if part == _LINE_SEPARATOR:
                self._rename(element, _LINE_BREAK)
            if part:
                yield element

    def _rename(self, element: Element, name: str) -> None:
        self.renamed.append((element, str(element.tag)))
        element.tag = name
