"""Holds a report before it is written as text, Markdown or a page: sections of blocks.

What a report says is decided once, in the modules that build documents; how it looks is decided by
the three that write them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.reporting.plots import Plot

GOOD, BAD, QUIET = "good", "bad", "quiet"


@dataclass(frozen=True, slots=True)
class Cell:
    """Holds one figure of a table. note: what stands under it, such as its interval. tone: GOOD,
    BAD or QUIET.
    """

    text: str
    note: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Holds rows of cells; the first of each row names it. note: what stands below."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """Holds a figure that is seen first."""

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
    """Holds sentences. is_warning: a reader must see them before any figure."""

    lines: Sequence[str]
    is_warning: bool = False


Block = Table | Tiles | Notes | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """Holds blocks under a title. is_brief: the section belongs into the terminal, too."""

    title: str
    blocks: Sequence[Block]
    is_brief: bool = True


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    subtitle: str
    sections: Sequence[Section] = field(default_factory=list)
