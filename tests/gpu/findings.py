"""Keeps what a run finds, written down line by line as it is found: a run that is cut off loses
nothing.

Every part of the run has a file of its own, `parts/NAME.jsonl`: a line of what ran where, a line
for each finding, and a last line that says how it ended.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Aim:
    """Says what a figure has to reach."""

    bound: Literal["at least", "at most"]
    value: float

    def is_reached_by(self, found: float) -> bool:
        return found >= self.value if self.bound == "at least" else found <= self.value

    def __str__(self) -> str:
        return f"{self.bound} {self.value:g}"


@dataclass(frozen=True)
class Finding:
    """One figure, and what it has to be. note: what else a reader has to know of it."""

    what: str
    found: float
    unit: str = ""
    aim: Aim | None = None
    note: str = ""

    @property
    def outcome(self) -> str:
        if self.aim is None:
            return ""
        return "reached" if self.aim.is_reached_by(self.found) else "missed"


def none_of(what: str, names: list[str], unit: str) -> Finding:
    """Things there must be none of, named."""
    return Finding(what, len(names), unit, Aim("at most", 0), ", ".join(names))


@dataclass
class PartResult:
    """Holds what is known of a part. ended: `whole`, or why it is not; None while it runs."""

    name: str
    began: str = ""
    findings: list[Finding] = field(default_factory=list)
    ended: str | None = None
    seconds: float | None = None

    @property
    def is_good(self) -> bool:
        return self.ended == "whole" and all(each.outcome != "missed" for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        found = [asdict(each) | {"outcome": each.outcome} for each in self.findings]
        return {
            "began": self.began,
            "ended": self.ended,
            "seconds": self.seconds,
            "findings": found,
        }


class Notebook:
    """The file of one part, in the folder of a run."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._path = folder / "parts" / f"{name}.jsonl"

    def begin(self) -> None:
        """Forget an earlier run of the part."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("")
        self._add({"began": time.strftime("%Y-%m-%d %H:%M:%S")})

    def add(self, finding: Finding) -> None:
        self._add({"finding": asdict(finding)})

    def end(self, how: str, seconds: float) -> None:
        self._add({"ended": how, "seconds": round(seconds, 1)})

    def _add(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def read(self) -> PartResult:
        result = PartResult(self.name)
        for line in self._lines():
            if "finding" in line:
                result.findings.append(_finding(line["finding"]))
            else:
                for key, value in line.items():
                    setattr(result, key, value)
        return result

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Whole lines: a process that was killed may have left half of one."""
        if not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8").split("\n")[:-1]:
            yield json.loads(line)


def _finding(values: dict[str, Any]) -> Finding:
    aim = values.pop("aim")
    return Finding(**values, aim=Aim(**aim) if aim else None)
