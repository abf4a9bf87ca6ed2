"""Judges runs of the same work under different loads, and finds the highest that was carried.

A load is carried when the objective is met and latency did not rise all through the window: a queue
that grows would break any limit in a longer run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.records import Recording, Run
from loadtest.statistics.cautions import is_drifting
from loadtest.statistics.figures import Figures, errors

DRIFTS = "latency and backlog rose through the window"


@dataclass(frozen=True, slots=True)
class Capacity:
    """Holds the highest load that was carried and the lowest above it that was not, if any."""

    carried: Figures | None
    not_carried: Figures | None


def load_value(run: Run) -> float:
    """Return the users of a closed loop, or the rate of an open one."""
    return float(run.arrivals.get("users") or run.arrivals.get("rate") or 0.0)


def load_unit(run: Run) -> str:
    return "users" if run.arrivals.get("users") else "requests/s"


def reasons_against(figures: Figures) -> list[str]:
    """Say why a load was not carried; nothing where it was."""
    found = []
    for verdict in figures.objective:
        if verdict.is_kept:
            continue
        if verdict.limit.figure == "error_rate":
            kinds = ", ".join(f"{kind} {n}" for kind, n in errors(figures).items())
            found.append(f"requests failed: {kinds}" if kinds else "no requests")
        else:
            value = verdict.measured.value
            told = verdict.measured.reason if value is None else f"{value:.4g}"
            found.append(f"{verdict.limit.figure} {told}")
    return [*found, DRIFTS] if is_drifting(figures.recording) else found


def load_in_words(run: Run) -> str:
    value = load_value(run)
    unit = "user" if run.arrivals.get("users") and value == 1 else load_unit(run)
    return f"{value:g} {unit}"


def in_a_line(figures: Figures) -> str:
    """Say in one line what a load showed."""
    run, named = figures.recording.run, figures.named
    speed, latency = named["answers_per_second"].value, named["e2e_p50_ms"].value
    parts = [f"{load_in_words(run)}: {speed or 0.0:.4g} answers/s"]
    if latency is not None:
        parts.append(f"median {latency:.4g} ms")
    if figures.objective:
        why = reasons_against(figures)
        parts.append(f"too much ({'; '.join(why)})" if why else "carried")
    return ", ".join(parts)


def capacity(runs: Sequence[Figures]) -> Capacity:
    """Find the capacity. A load above one that was not carried does not count: it was luck."""
    ordered = sorted(runs, key=lambda figures: load_value(figures.recording.run))
    carried = None
    for figures in ordered:
        if reasons_against(figures):
            return Capacity(carried, figures)
        carried = figures
    return Capacity(carried, None)


def are_of_one_sort(recordings: Sequence[Recording]) -> bool:
    return len({load_unit(recording.run) for recording in recordings}) == 1
