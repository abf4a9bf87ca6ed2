"""The report of a run: one JSON file and one Markdown page, written anew after every part."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.findings import Finding, Notebook, PartResult
from tests.gpu.parts import PARTS


def write_report(folder: Path, machine: dict[str, Any]) -> list[PartResult]:
    """Write `report.json` and `report.md` of all parts that the folder knows of."""
    results = [Notebook(folder, name).read() for name in PARTS]
    known = [each for each in results if each.began]
    document = {"machine": machine, "parts": {each.name: each.as_json() for each in known}}
    _replace(folder / "report.json", json.dumps(document, indent=2) + "\n")
    _replace(folder / "report.md", "\n".join(_page(machine, results)) + "\n")
    return known


def _replace(path: Path, content: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(content, encoding="utf-8")
    fresh.replace(path)


def _page(machine: dict[str, Any], results: list[PartResult]) -> Iterator[str]:
    versions = ", ".join(f"{name} {found}" for name, found in machine["versions"].items())
    yield "# On a GPU"
    yield ""
    yield f"{machine['device']}; {machine['cpus']} CPUs; Python {machine['python']}; {versions};"
    yield f"commit {machine['commit']}. Aims that are missed are bold."
    for result in results:
        yield ""
        yield from _section(result)


def _section(result: PartResult) -> Iterator[str]:
    part = PARTS[result.name]
    yield f"## {part.title}: {part.shape}" if part.shape else f"## {part.title}"
    yield ""
    if not result.began:
        yield f"Never run: `python -m tests.gpu --only {result.name}`."
        return
    ended = "Not ended." if result.ended is None else f"{result.ended.capitalize()}."
    yield f"`{result.name}`, {result.began}, {result.seconds or 0:g} s. {ended}"
    if result.findings:
        yield ""
        yield "| what | found | aim | |"
        yield "|---|---:|---|---|"
        yield from (_row(each) for each in result.findings)


def _row(finding: Finding) -> str:
    found = f"{finding.found:,.4g}" if finding.found < 1000 else f"{finding.found:,.0f}"
    found = f"{found} {finding.unit}".strip()
    if finding.outcome == "missed":
        found = f"**{found}**"
    cells = (finding.what, found, finding.aim or "", finding.note)
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
