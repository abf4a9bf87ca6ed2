"""Writes reports as JSON for programs. Names and meanings stay as they are within a version."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from loadtest.records import counted
from loadtest.statistics.comparison import Difference, differences
from loadtest.statistics.figures import Figures, Part, errors
from loadtest.statistics.limits import Verdict
from loadtest.statistics.probes import capacity, load_unit, load_value, reasons_against

SCHEMA = "attendant-loadtest-report"
VERSION = 1


def run_json(figures: Figures, asserted: Sequence[Verdict] = ()) -> str:
    return _written("run", {**_run(figures), "assertions": list(map(_verdict, asserted))})


def comparison_json(first: Figures, second: Figures, names: tuple[str, str]) -> str:
    found = list(map(_difference, differences(first, second)))
    runs = dict(zip(names, map(_run, (first, second)), strict=True))
    return _written("comparison", {"runs": runs, "differences": found})


def loads_json(runs: Sequence[Figures]) -> str:
    found: dict[str, Any] = {
        "unit": load_unit(runs[0].recording.run),
        "runs": [_load(each) for each in runs],
    }
    if runs[0].objective:
        best = capacity(runs)
        found["capacity"] = {
            "carried": best.carried and load_value(best.carried.recording.run),
            "not_carried": best.not_carried and load_value(best.not_carried.recording.run),
        }
    return _written("loads", found)


def _written(kind: str, content: dict[str, Any]) -> str:
    head = {"schema": SCHEMA, "version": VERSION, "kind": kind}
    return json.dumps({**head, **content}, indent=2, ensure_ascii=False, allow_nan=False)


def _load(figures: Figures) -> dict[str, Any]:
    value = load_value(figures.recording.run)
    return {"load": value, "reasons_against": reasons_against(figures), **_run(figures)}


def _run(figures: Figures) -> dict[str, Any]:
    recording = figures.recording
    return {
        "run": asdict(recording.run),
        "window": {**asdict(recording.window), "is_complete": recording.is_complete},
        "requests": len(counted(recording)),
        "figures": {name: found.as_json() for name, found in figures.named.items()},
        "samples": {name: found.count for name, found in figures.distributions.items()},
        "errors": errors(figures),
        "refused_as_meant": figures.refused_as_meant,
        "tokens_counted_by": figures.tokens_counted_by,
        "objective": list(map(_verdict, figures.objective)),
        "goodput_limits_ms": _goodput_limits(figures),
        "fairness": {"users": figures.fairness.users, "of": figures.fairness.shared},
        "parts": [_part(each) for each in figures.parts],
        "server": [{**asdict(each), "difference": each.difference} for each in figures.server],
        "series": _series(figures),
        "cautions": figures.cautions,
    }


def _goodput_limits(figures: Figures) -> dict[str, float] | None:
    if figures.goodput is None:
        return None
    return {name: bound * 1000 for name, bound in figures.goodput.limits.items()}


def _part(part: Part) -> dict[str, Any]:
    latencies = {
        f"{name}_p{percent:g}_ms": estimate.scaled(1000).as_json()
        for name, found in part.distributions.items()
        for percent, estimate in found.percentiles.items()
    }
    return {
        "name": part.name,
        "answers": part.answers,
        "errors": part.failures,
        "figures": latencies,
    }


def _series(figures: Figures) -> dict[str, Any]:
    found = figures.series
    names = ("times", "offered", "answered", "failed", "tokens", "in_flight")
    latencies = {
        f"{name}_p{percent:g}_ms": [None if math.isnan(v) else v * 1000 for v in values.tolist()]
        for name, by_percent in found.latencies.items()
        for percent, values in by_percent.items()
    }
    rates = {name: getattr(found, name).tolist() for name in names}
    return {"width_seconds": found.width, **rates, **latencies}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    limit = asdict(verdict.limit)
    return {**limit, "measured": verdict.measured.as_json(), "is_kept": verdict.is_kept}


def _difference(found: Difference) -> dict[str, Any]:
    return {
        "measure": found.measure,
        "medians_ms": [median * 1000 for median in found.medians],
        "ratio": found.ratio.as_json(),
        "slower": found.slower,
        "p": found.p,
        "is_significant": found.is_significant,
    }
