"""The page of a soak."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from loadtest.reporting.document import (
    BAD,
    GOOD,
    Cell,
    Notes,
    ReportDocument,
    ReportSection,
    ReportTable,
    Tile,
    Tiles,
)
from loadtest.reporting.plots import Curve, Plot, PlotAxis, from_zero
from tests.soak.clients import Record
from tests.soak.measures import Sample, Series, series

_WARM_UP_SECONDS = 300.0
_SETTLE_SECONDS = 45.0
_MOST_GROWTH = 0.03
_ENDS = ("well", "refused", "broken off", "wrong")
_FIGURES = {"pss_mib": "Memory, MiB", "num_files": "File descriptors", "num_threads": "Threads"}


@dataclass(frozen=True)
class Soak:
    """kills: seconds and part of each. num_late: clients that did not end in time."""

    record: Record
    samples: list[Sample]
    kills: list[tuple[float, str]]
    seconds: float
    num_late: int

    def figure(self, name: str) -> Series:
        warm_up = min(_WARM_UP_SECONDS, self.seconds / 3)
        kills = [at for at, _ in self.kills]
        within = [each for each in self.samples if each.seconds <= self.seconds]
        return series(within, name, warm_up, kills, _SETTLE_SECONDS)

    @property
    def holds(self) -> bool:
        is_flat = all(self.figure(name).growth <= _MOST_GROWTH for name in _FIGURES)
        return is_flat and not self.record.wrong and not self.num_late


def document(soak: Soak) -> ReportDocument:
    ends = soak.record.ends
    names = sorted({name for name, _ in ends})
    rows = [[Cell(name), *(Cell(f"{ends[name, end]:,}") for end in _ENDS)] for name in names]
    totals: Counter[str] = Counter()
    for (_, end), number in ends.items():
        totals[end] += number
    rows.append([Cell("all"), *(Cell(f"{totals[end]:,}") for end in _ENDS)])
    parts = Counter(part for _, part in soak.kills)
    killed = ", ".join(f"{part} {number}" for part, number in parts.items()) or "none"
    sections = [
        ReportSection("Does it hold?", [Tiles([*_tiles(soak, totals)])]),
        ReportSection("How requests ended", [ReportTable(["", *_ENDS], rows)]),
        ReportSection("Over time", [*_plots(soak)], is_brief=False),
    ]
    if soak.record.wrong:
        sections.insert(1, ReportSection("Wrong", [Notes(soak.record.wrong[:20], is_warning=True)]))
    subtitle = f"{soak.seconds / 60:.0f} minutes; killed: {killed}"
    return ReportDocument("Soak of attendant serve", subtitle, sections)


def _tiles(soak: Soak, totals: Counter[str]) -> list[Tile]:
    wrong = totals["wrong"] + soak.num_late
    tiles = [
        Tile("requests", f"{sum(totals.values()):,}", ""),
        Tile("wrong or without an end", str(wrong), "", tone=BAD if wrong else GOOD),
        Tile("median time", f"{1000 * float(np.median(soak.record.seconds or [0])):.0f}", "ms"),
    ]
    for name, title in _FIGURES.items():
        growth = soak.figure(name).growth
        tone = GOOD if growth <= _MOST_GROWTH else BAD
        note = "first to last third, without the warm-up and new processes"
        tiles.append(Tile(f"growth: {title}", f"{100 * growth:+.1f}", "%", note, tone))
    return tiles


def _plots(soak: Soak) -> list[Plot]:
    settled = [min(at + _SETTLE_SECONDS, soak.seconds) for at, _ in soak.kills]
    kills = [(at / 60, end / 60) for (at, _), end in zip(soak.kills, settled, strict=True)]
    plots = []
    for name, title in _FIGURES.items():
        found = soak.figure(name)
        minutes = found.seconds / 60
        x = PlotAxis("minutes", 0.0, max(1.0, soak.seconds / 60))
        curve = Curve(title, minutes, found.values, "one")
        caption = "Shaded: after a kill."
        plots.append(Plot(title, caption, x, from_zero("", found.values), [curve], outside=kills))
    return plots
