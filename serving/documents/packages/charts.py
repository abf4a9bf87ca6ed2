"""Charts, and the workbooks in the same document that their names and categories come from.

A chart keeps copies of the cells that it shows (ECMA-376, part 1, 21.2.2.201). Programs read them
from the workbook again as soon as its data is edited, so the workbook is translated, and the copies
get what its cells say then. Where the workbook is elsewhere, or cannot be read, both stay; copies
without a workbook are the chart's own texts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO

from lxml import etree

from serving.documents.packages import xlsx
from serving.documents.packages.drawing import drawing_paragraphs
from serving.documents.packages.office import (
    MAX_UNPACKED_BYTES,
    LinkedPart,
    PackagePart,
    Paragraph,
    ZipPackage,
    keep_with_words,
    read_relations,
)
from serving.documents.packages.xlsx_cells import Cells, update_copies
from serving.documents.xml_trees import parse_xml, xml_bytes
from serving.errors import RequestError, TooLarge

Element = etree._Element


def read_charts(
    package: ZipPackage, types: Mapping[str, str], names: Iterable[str]
) -> tuple[list[PackagePart], list[LinkedPart]]:
    """Return the parts of DrawingML of a document, and the workbooks that are embedded for them.

    Raises TooLarge if the workbooks together unpack to too much.
    """
    parts: list[PackagePart] = []
    workbooks: dict[str, EmbeddedWorkbook | None] = {}
    num_bytes = 0
    for name in names:
        tree = parse_xml(package.read(name), name)
        root = tree.getroot()
        paragraphs = [*drawing_paragraphs(root)]
        data = next(root.iter("{*}externalData"), None)
        if data is None:
            paragraphs += _texts_of_chart(root)
        elif (embedded := _embedded_name(package, name)) is not None:
            if embedded not in workbooks:
                workbooks[embedded] = workbook = _workbook(package, embedded)
                num_bytes += workbook.num_bytes if workbook else 0
                if num_bytes > MAX_UNPACKED_BYTES:
                    message = f"its workbooks unpack to more than {MAX_UNPACKED_BYTES // 2**20} MiB"
                    raise TooLarge("file", f"{num_bytes} bytes", message)
            if (workbook := workbooks[embedded]) is not None:
                workbook.charts.append((name, tree))
        parts.append(PackagePart(name, tree, keep_with_words(paragraphs)))
    return parts, [workbook for workbook in workbooks.values() if workbook is not None]


def _texts_of_chart(root: Element) -> Iterator[Paragraph]:
    """Yield names and categories that the chart alone has."""
    for holder in root.iter("{*}strCache", "{*}strLit", "{*}dlblRangeCache"):
        for value in holder.iter("{*}v"):
            yield xlsx.PlainText(value, value)
    for holder in root.iter("{*}tx", "{*}trendline"):
        for value in holder.iterchildren("{*}v", "{*}name"):
            yield xlsx.PlainText(value, value)


def _embedded_name(package: ZipPackage, chart: str) -> str | None:
    """Return the name of the workbook that is embedded for a chart."""
    targets = (
        target for kind, target in read_relations(package, chart).values() if kind == "package"
    )
    return next((target for target in targets if target in package.names), None)


def _workbook(package: ZipPackage, name: str) -> "EmbeddedWorkbook | None":
    """Return an embedded workbook; None if it cannot be read."""
    try:
        return EmbeddedWorkbook(name, BytesIO(package.read(name)))
    except TooLarge:
        raise
    except RequestError:
        return None


@dataclass
class EmbeddedWorkbook:
    """A workbook in a document, and the charts that show it."""

    name: str
    source: BinaryIO
    charts: list[tuple[str, etree._ElementTree]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._package, self._document = xlsx.read_workbook(self.source)

    @property
    def num_bytes(self) -> int:
        return self._package.num_bytes

    @property
    def fragments(self) -> Sequence[str]:
        return self._document.fragments

    def write(
        self, translations: Sequence[str], changed: Mapping[str, bytes], language: str
    ) -> Mapping[str, bytes]:
        """Return the translated workbook, and the charts with the texts of its cells."""
        target = BytesIO()
        self._document.write(translations, target, language)
        before, after = Cells(self._package), Cells(ZipPackage(target))
        changed_parts = {self.name: target.getvalue()}
        for name, tree in self.charts:
            update_copies(tree.getroot(), before, after)
            changed_parts[name] = xml_bytes(tree)
        return changed_parts
