"""A report as sections of tables, notes and plots, and how it is written as text and Markdown."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loadtest.reporting.numbers import figure, interval
from loadtest.reporting.plots import Plot
from loadtest.statistics.estimates import Estimate

GOOD, BAD, QUIET = "good", "bad", "quiet"


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a table. note: small print, such as an interval. tone: GOOD, BAD or QUIET."""

    text: str
    note: str = ""
    tone: str = ""


def measured_cell(estimate: Estimate, tone: str = "") -> Cell:
    """Return a cell of a figure, its interval below."""
    return Cell(figure(estimate), interval(estimate), tone)


@dataclass(frozen=True, slots=True)
class ReportTable:
    """Rows of cells; the first cell of a row names it. note: small print below."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """An important figure, shown large."""

    label: str
    value: str
    unit: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Tiles:
    tiles: Sequence[Tile]


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences. is_warning: what a reader must know before the figures."""

    lines: Sequence[str]
    is_warning: bool = False


Block = ReportTable | Tiles | Notes | Plot


@dataclass(frozen=True, slots=True)
class ReportSection:
    """Blocks under a title. is_brief: the section is shown on a terminal too."""

    title: str
    blocks: Sequence[Block]
    is_brief: bool = True


@dataclass(frozen=True, slots=True)
class ReportDocument:
    title: str
    subtitle: str
    sections: Sequence[ReportSection] = field(default_factory=list)


def as_text(document: ReportDocument) -> str:
    """Write a document for a terminal: its brief sections, in aligned columns, without plots."""
    sections = [
        "\n".join([section.title.upper(), *blocks])
        for section in document.sections
        if section.is_brief and (blocks := _write_blocks(section, _text_block))
    ]
    return "\n\n".join([f"{document.title}\n{document.subtitle}", *sections])


def as_markdown(document: ReportDocument) -> str:
    """Write a document as Markdown, without plots."""
    parts = [f"# {_escape(document.title)}", _escape(document.subtitle)]
    for section in document.sections:
        if blocks := _write_blocks(section, _markdown_block):
            parts += [f"## {_escape(section.title)}", *blocks]
    return "\n\n".join(parts) + "\n"


def _write_blocks(section: ReportSection, write: Callable[[Block], str]) -> list[str]:
    return [text for block in section.blocks if (text := write(block))]


def _text_block(block: Block) -> str:
    match block:
        case ReportTable():
            return _text_table(block)
        case Tiles():
            return _text_tiles(block)
        case Notes():
            return "\n".join(f"  {'! ' if block.is_warning else ''}{line}" for line in block.lines)
        case Plot():
            return ""


def _text_tiles(block: Tiles) -> str:
    width = max((len(tile.label) for tile in block.tiles), default=0)
    return "\n".join(
        f"  {tile.label.ljust(width)}  {tile.value} {tile.unit}".rstrip()
        + (f"  ({tile.note})" if tile.note else "")
        for tile in block.tiles
    )


def _text_table(table: ReportTable) -> str:
    lines = [list(table.header)]
    for row in table.rows:
        lines.append([cell.text for cell in row])
        if any(cell.note for cell in row):
            lines.append([f"  {row[0].note}".rstrip(), *(cell.note for cell in row[1:])])
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    text = "\n".join("  " + _align(line, widths) for line in lines)
    return f"{text}\n  {table.note}" if table.note else text


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()


def _markdown_block(block: Block) -> str:
    match block:
        case ReportTable():
            return _markdown_table(block)
        case Tiles():
            rows = [
                [Cell(t.label), Cell(f"{t.value} {t.unit}".strip()), Cell(t.note)]
                for t in block.tiles
            ]
            return _markdown_table(ReportTable(["", "", ""], rows))
        case Notes():
            mark = "**Note:** " if block.is_warning else ""
            return "\n".join(f"- {mark}{_escape(line)}" for line in block.lines)
        case Plot():
            return ""


def _markdown_table(table: ReportTable) -> str:
    lines = [
        _row(map(_escape, table.header)),
        _row("---" if i == 0 else "---:" for i in range(len(table.header))),
        *(_row(map(_markdown_cell, row)) for row in table.rows),
    ]
    text = "\n".join(lines)
    return f"{text}\n\n{_escape(table.note)}" if table.note else text


def _markdown_cell(cell: Cell) -> str:
    note = f" ({_escape(cell.note)})" if cell.note else ""
    return f"{_escape(cell.text)}{note}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    for character in "\\|*_<>`":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
