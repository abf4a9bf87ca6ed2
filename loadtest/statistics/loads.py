"""Judges runs of the same work under different loads, and finds the highest that was carried.

A load is carried if the objective is met and no queue grew during the window: a longer run would
exceed any limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.records import Recording, RunRecord
from loadtest.statistics.estimates import Samples, percentile
from loadtest.statistics.figures import Figures, errors
from loadtest.statistics.measures import MEASURES, is_answer, samples_of

DRIFT = 1.5
BACKLOG = 0.05  # share of the due requests by which the server may fall behind
FEWEST_IN_A_THIRD = 20


@dataclass(frozen=True, slots=True)
class Capacity:
    """The highest load that was carried and the lowest above it that was not, if any."""

    carried: Figures | None
    not_carried: Figures | None


def capacity(runs: Sequence[Figures]) -> Capacity:
    """Find the capacity. Loads above one that was not carried do not count: they had luck."""
    carried = None
    for figures in sorted(runs, key=lambda figures: load_value(figures.recording.run)):
        if reasons_against(figures):
            return Capacity(carried, figures)
        carried = figures
    return Capacity(carried, None)


def reasons_against(figures: Figures) -> list[str]:
    """Return why a load was not carried; empty if it was."""
    problems = []
    for verdict in figures.objective:
        if verdict.is_kept:
            continue
        if verdict.limit.figure == "error_rate":
            kinds = ", ".join(f"{kind} {n}" for kind, n in errors(figures).items())
            problems.append(f"requests failed: {kinds}" if kinds else "no requests")
        else:
            value = verdict.measured.value
            measured = verdict.measured.reason if value is None else f"{value:.4g}"
            problems.append(f"{verdict.limit.figure} {measured}")
    if is_drifting(figures.recording):
        problems.append("latency and backlog rose through the window")
    return problems


def is_drifting(recording: Recording) -> bool:
    """Return whether latency rose from the first to the last third of the window beyond chance.

    In an open loop a queue must have grown too: there latency also rises and falls by chance.
    """
    due, over = len(recording.due_inside()), len(recording.ended_inside())
    if not recording.is_closed_loop and due - over <= BACKLOG * due:
        return False
    answers = sorted(filter(is_answer, recording.requests_in_window()), key=lambda r: r.intended)
    third = len(answers) // 3
    if third < FEWEST_IN_A_THIRD:
        return False
    first, last = (
        np.sort(samples_of(part, MEASURES["e2e"]).values)
        for part in (answers[:third], answers[-third:])
    )
    low = percentile(Samples(last), 50).low
    return low is not None and bool(low > DRIFT * np.median(first))


def load_value(run: RunRecord) -> float:
    """Return the users of a closed loop, or the rate of an open one."""
    return float(run.arrivals.get("users") or run.arrivals.get("rate") or 0.0)


def load_unit(run: RunRecord) -> str:
    return "users" if run.arrivals.get("users") else "requests/s"


def load_in_words(run: RunRecord) -> str:
    value, unit = load_value(run), load_unit(run)
    return "1 user" if (value, unit) == (1.0, "users") else f"{value:g} {unit}"


def in_a_line(figures: Figures) -> str:
    """Summarise a load in one line."""
    run, named = figures.recording.run, figures.named
    speed, latency = named["answers_per_second"].value, named["p50_e2e_ms"].value
    parts = [f"{load_in_words(run)}: {speed or 0.0:.4g} answers/s"]
    if latency is not None:
        parts.append(f"median {latency:.4g} ms")
    if figures.objective:
        why = reasons_against(figures)
        parts.append(f"too much ({'; '.join(why)})" if why else "carried")
    return ", ".join(parts)
