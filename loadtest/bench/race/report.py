"""Writes what a race found as JSON and as Markdown."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loadtest.bench.race.results import Row, number

HEAD = """\
| workload | unit | ours, best setting | ours | peer, its best setting | peer | ratio \
| per CPU second | aim | reached | first token, ms | same outputs |
|---|---|---|---:|---|---:|---:|---:|---:|---|---|---|
"""


@dataclass(frozen=True)
class Report:
    """Holds all that a race found.

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
        yield HEAD + "\n".join(map(_line, self.rows))
        for name, why in self.missing.items():
            yield f"\nSkipped: {name}: {why}"


def _line(row: Row) -> str:
    cells = [
        row.workload.says,
        row.unit,
        row.ours.setting,
        number(row.ours.rate.median),
        f"{row.theirs.name}: {row.theirs.setting or 'as it comes'}",
        number(row.theirs.rate.median),
        str(row.ratio),
        number(row.cpu_ratio.median) if row.cpu_ratio else "",
        "" if row.aim is None else f"{row.aim:g}",
        {None: "", True: "yes", False: "no"}[row.is_reached],
        _first_tokens(row),
        _agreement(row),
    ]
    return f"| {' | '.join(cells)} |"


def _first_tokens(row: Row) -> str:
    """Write ours and theirs, where both were looked at."""
    both = [each.first_seconds for each in (row.ours, row.theirs)]
    return ", ".join(number(1e3 * median(times)) for times in both) if all(both) else ""


def _agreement(row: Row) -> str:
    found = row.agreement
    if found is None:
        return ""
    same = f"{found.same} of {found.total}"
    if found.bleu_difference is None:
        return same
    return f"{same}; BLEU {found.bleu_difference:+.2f}"
