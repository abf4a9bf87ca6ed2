"""Writes a document for a terminal: short, in aligned columns, without pictures."""

from collections.abc import Sequence

from loadtest.reporting.document import Block, Cell, Document, Notes, Table, Tiles
from loadtest.reporting.plots import Plot


def as_text(document: Document) -> str:
    parts = [f"{document.title}\n{document.subtitle}"]
    for section in document.sections:
        blocks = [text for block in section.blocks if (text := _block(block))]
        if section.is_brief and blocks:
            parts.append("\n".join([section.title.upper(), *blocks]))
    return "\n\n".join(parts)


def _block(block: Block) -> str:
    match block:
        case Table():
            return _table(block)
        case Tiles():
            width = max((len(tile.label) for tile in block.tiles), default=0)
            lines = [
                (t.label.ljust(width), f"{t.value} {t.unit}".rstrip(), t.note) for t in block.tiles
            ]
            return "\n".join(f"  {label}  {value}{_aside(note)}" for label, value, note in lines)
        case Notes():
            return "\n".join(f"  {'! ' if block.is_warning else ''}{line}" for line in block.lines)
        case Plot():
            return ""


def _aside(note: str) -> str:
    return f"  ({note})" if note else ""


def _table(table: Table) -> str:
    lines = [list(table.header)]
    for row in table.rows:
        lines.append([cell.text for cell in row])
        if any(cell.note for cell in row):
            lines.append(_notes(row))
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.header))]
    text = "\n".join("  " + _aligned(line, widths) for line in lines)
    return f"{text}\n  {table.note}" if table.note else text


def _notes(row: Sequence[Cell]) -> list[str]:
    return [f"  {row[0].note}" if row[0].note else "", *(cell.note for cell in row[1:])]


def _aligned(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [line[0].ljust(widths[0])]
    cells += [text.rjust(width) for text, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()
