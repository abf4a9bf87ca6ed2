"""The results of a comparison: ratios and spreads, computed from the raw turns."""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.bench.compare_memory import Memory
from loadtest.bench.compare_workloads import Workload


@dataclass(frozen=True)
class Spread:
    """A median and its extremes."""

    median: float
    low: float
    high: float

    @classmethod
    def from_values(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class OutputAgreement:
    """How many outputs are equal to ours.

    bleu_difference: our BLEU minus theirs; None without references.
    """

    same: int
    total: int
    bleu_difference: float | None = None


@dataclass(frozen=True)
class PeerEntry:
    """The measured rounds of one engine at one workload.

    rates: a round each, in the unit of the workload; cpu_rates: the same per second of processor,
    first_seconds until the first token, decode_rates of a stream after it, and the memory of a
    server, where they were measured.
    """

    name: str
    setting: str
    rates: list[float]
    cpu_rates: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    decode_rates: list[float] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    raw: list[Any] = field(default_factory=list)

    @property
    def rate(self) -> Spread:
        return Spread.from_values(self.rates)


@dataclass(frozen=True)
class Row:
    """Compares ours with one peer at one workload."""

    workload: Workload
    unit: str
    ours: PeerEntry
    theirs: PeerEntry
    agreement: OutputAgreement | None = None

    @property
    def ratio(self) -> Spread:
        """Return how many times as fast ours was, round by round."""
        return Spread.from_values(ratios(self.ours.rates, self.theirs.rates))

    @property
    def cpu_ratio(self) -> Spread | None:
        if not self.ours.cpu_rates or not self.theirs.cpu_rates:
            return None
        return Spread.from_values(ratios(self.ours.cpu_rates, self.theirs.cpu_rates))

    @property
    def aim(self) -> float | None:
        return self.workload.aim(self.theirs.name)

    @property
    def is_reached(self) -> bool | None:
        return None if self.aim is None else self.ratio.median >= self.aim

    def as_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "peer": self.theirs.name,
            "unit": self.unit,
            "ratio": asdict(self.ratio),
            "cpu_ratio": asdict(self.cpu_ratio) if self.cpu_ratio else None,
            "aim": self.aim,
            "is_reached": self.is_reached,
            "agreement": asdict(self.agreement) if self.agreement else None,
            "ours": asdict(self.ours),
            "theirs": asdict(self.theirs),
        }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Compare round by round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def number(value: float) -> str:
    """Write three digits that count."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class ComparisonReport:
    """All that a race found.

    about: the machine, the model, the versions and the command. missing: why peers were skipped.
    """

    about: dict[str, Any]
    rows: Sequence[Row]
    missing: dict[str, str]

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "race.json").write_text(json.dumps(self.as_json(), indent=1), "utf-8")
        (folder / "race.md").write_text(self.as_markdown(), "utf-8")

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "rows": [row.as_json() for row in self.rows],
            "missing": self.missing,
        }

    def as_markdown(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        about = self.about
        versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
        yield f"**{about['bundle']}**, {about['precision']}, on {about['cores']} core(s) of"
        yield f"{about['processor']}; {versions}."
        yield f"Medians of {about['rounds']} rounds, in turns; the extremes in brackets.\n"
        yield f"```sh\n{about['command']}\n```\n"
        if self.rows:
            yield from _table([_cells(row) for row in self.rows])
        for name, why in self.missing.items():
            yield f"\nSkipped: {name}: {why}"


def _table(rows: Sequence[dict[str, str]]) -> Iterator[str]:
    """Yield the lines of a table, without the columns that are empty in all rows."""
    columns = [name for name in rows[0] if any(row[name] for row in rows)]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row[name] for name in columns)} |"


def _cells(row: Row) -> dict[str, str]:
    """Return the cells of a row by the heads of their columns."""
    pair = (row.ours, row.theirs)
    first_seconds, decode_rates = (
        [getattr(entry, name) for entry in pair] for name in ("first_seconds", "decode_rates")
    )
    sizes, totals = (
        [[getattr(memory, name) for memory in entry.memory] for entry in pair]
        for name in ("model_mib", "total_mib")
    )
    return {
        "workload": row.workload.says,
        "unit": row.unit,
        "ours, best setting": row.ours.setting,
        "ours": number(row.ours.rate.median),
        "peer, its best setting": f"{row.theirs.name}: {row.theirs.setting or 'as it comes'}",
        "peer": number(row.theirs.rate.median),
        "ratio": str(row.ratio),
        "per CPU second": number(row.cpu_ratio.median) if row.cpu_ratio else "",
        "aim": "" if row.aim is None else f"{row.aim:g}",
        "reached": {None: "", True: "yes", False: "no"}[row.is_reached],
        "first token, ms": _both_medians(first_seconds, 1e3),
        "tokens/s of a stream after it": _both_medians(decode_rates),
        "memory of the model's process, MiB": _both_medians(sizes),
        "of all processes": _both_medians(totals),
        "same outputs": _agreement(row),
    }


def _both_medians(pair: Sequence[Sequence[float]], scale: float = 1.0) -> str:
    """Write ours, theirs and their ratio, if both were measured."""
    if not all(pair):
        return ""
    ours, theirs = (scale * median(values) for values in pair)
    return f"{number(ours)}, {number(theirs)} ({number(ours / theirs)})"


def _agreement(row: Row) -> str:
    agreement = row.agreement
    if agreement is None:
        return ""
    same = f"{agreement.same} of {agreement.total}"
    if agreement.bleu_difference is None:
        return same
    return f"{same}; BLEU {agreement.bleu_difference:+.2f}"
