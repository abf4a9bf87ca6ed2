"""Holds what a race found, and computes ratios and spreads from the raw turns."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from loadtest.bench.race.workloads import Workload


@dataclass(frozen=True)
class Spread:
    """Holds a median and the extremes around it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{number(self.median)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True)
class Agreement:
    """Says how far outputs are equal to ours.

    bleu_difference: ours less theirs, against references; None without any.
    """

    same: int
    total: int
    bleu_difference: float | None = None


@dataclass(frozen=True)
class Entry:
    """Holds the measured rounds of one engine at one workload.

    rates: a round each, in the unit of the workload; cpu_rates: the same per second of processor,
    and first_seconds until the first token, where they were measured.
    """

    name: str
    setting: str
    rates: list[float]
    cpu_rates: list[float] = field(default_factory=list)
    first_seconds: list[float] = field(default_factory=list)
    raw: list[Any] = field(default_factory=list)

    @property
    def rate(self) -> Spread:
        return Spread.of(self.rates)


@dataclass(frozen=True)
class Row:
    """Compares ours with one peer at one workload."""

    workload: Workload
    unit: str
    ours: Entry
    theirs: Entry
    agreement: Agreement | None = None

    @property
    def ratio(self) -> Spread:
        """Return how many times as fast ours was, round by round."""
        return Spread.of(ratios(self.ours.rates, self.theirs.rates))

    @property
    def cpu_ratio(self) -> Spread | None:
        if not self.ours.cpu_rates or not self.theirs.cpu_rates:
            return None
        return Spread.of(ratios(self.ours.cpu_rates, self.theirs.cpu_rates))

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
