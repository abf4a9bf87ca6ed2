"""Writes a document as one HTML file that needs no other file.

The script only adds the values under the pointer.
"""

from collections.abc import Sequence
from html import escape
from importlib.resources import files

from loadtest.reporting.document import (
    Block,
    Cell,
    Notes,
    ReportDocument,
    ReportSection,
    ReportTable,
    Tile,
    Tiles,
)
from loadtest.reporting.plots import Plot, draw

RESOURCES = files("loadtest.reporting")
NARROW = 4  # columns or fewer
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{subtitle}</p></header>
<main>
{sections}
</main>
<script>
{script}</script>
</body>
</html>
"""


def as_page(document: ReportDocument) -> str:
    return PAGE.format(
        title=escape(document.title),
        subtitle=escape(document.subtitle),
        style=RESOURCES.joinpath("page.css").read_text(encoding="utf-8"),
        script=RESOURCES.joinpath("page.js").read_text(encoding="utf-8"),
        sections="\n".join(map(_section, document.sections)),
    )


def _section(section: ReportSection) -> str:
    others = [_block(block) for block in section.blocks if not isinstance(block, Plot)]
    plots = [draw(block) for block in section.blocks if isinstance(block, Plot)]
    parts = [f"<h2>{escape(section.title)}</h2>", *others]
    if plots:
        kind = "plots three" if len(plots) % 3 == 0 else "plots"
        parts.append(f'<div class="{kind}">{"".join(plots)}</div>')
    return f"<section>{''.join(parts)}</section>"


def _block(block: Block) -> str:
    match block:
        case ReportTable():
            return _table(block)
        case Tiles():
            return f'<div class="tiles">{"".join(map(_tile, block.tiles))}</div>'
        case Notes():
            items = "".join(f"<li>{escape(line)}</li>" for line in block.lines)
            return f'<ul class="{"warning" if block.is_warning else "notes"}">{items}</ul>'
        case Plot():
            return draw(block)


def _tile(tile: Tile) -> str:
    unit = f"<small>{escape(tile.unit)}</small>" if tile.unit else ""
    return (
        f'<div class="tile {tile.tone}"><span>{escape(tile.label)}</span>'
        f"<strong>{escape(tile.value)}{unit}</strong><em>{escape(tile.note)}</em></div>"
    )


def _table(table: ReportTable) -> str:
    header = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.header)
    rows = "".join(f"<tr>{_row(row)}</tr>" for row in table.rows)
    note = f"<p class=note>{escape(table.note)}</p>" if table.note else ""
    body = f"<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table>"
    kind = "scroll narrow" if len(table.header) <= NARROW else "scroll"
    return f'<div class="{kind}" tabindex="0">{body}</div>{note}'


def _row(row: Sequence[Cell]) -> str:
    first, *others = row
    cells = [f'<th scope="row" class="{first.tone}">{_cell(first)}</th>']
    return "".join([*cells, *(f'<td class="{cell.tone}">{_cell(cell)}</td>' for cell in others)])


def _cell(cell: Cell) -> str:
    note = f"<small>{escape(cell.note)}</small>" if cell.note else ""
    return f"{escape(cell.text)}{note}"
