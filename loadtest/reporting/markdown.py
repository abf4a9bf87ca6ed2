"""Writes a document as Markdown, for pull requests and wikis."""

from collections.abc import Iterable

from loadtest.reporting.document import Block, Cell, Document, Notes, Table, Tiles
from loadtest.reporting.plots import Plot


def as_markdown(document: Document) -> str:
    parts = [f"# {_escaped(document.title)}", _escaped(document.subtitle)]
    for section in document.sections:
        blocks = [text for block in section.blocks if (text := _block(block))]
        if blocks:
            parts += [f"## {_escaped(section.title)}", *blocks]
    return "\n\n".join(parts) + "\n"


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Tiles():
            cells = [
                [Cell(t.label), Cell(f"{t.value} {t.unit}".strip()), Cell(t.note)]
                for t in block.tiles
            ]
            return _table(Table(["", "", ""], cells))
        case Notes():
            mark = "**Note:** " if block.is_warning else ""
            return "\n".join(f"- {mark}{_escaped(line)}" for line in block.lines)
        case Plot():
            return ""


def _table(table: Table) -> str:
    lines = [
        _row(map(_escaped, table.header)),
        _row("---" if i == 0 else "---:" for i in range(len(table.header))),
        *(_row(map(_cell, row)) for row in table.rows),
    ]
    text = "\n".join(lines)
    return f"{text}\n\n{_escaped(table.note)}" if table.note else text


def _cell(cell: Cell) -> str:
    note = f" ({_escaped(cell.note)})" if cell.note else ""
    return f"{_escaped(cell.text)}{note}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    for each in "\\|*_<>`":
        text = text.replace(each, f"\\{each}")
    return text.replace("\n", " ")
