"""Says in words how a run was made."""

from collections.abc import Mapping
from typing import Any

from loadtest.records import CLOSED_LOOP, Recording, Run
from loadtest.reporting.numbers import number


def load_of(run: Run) -> str:
    """Name the load in a few words, such as "32 users" or "poisson, 50 requests/s"."""
    arrivals = run.arrivals
    if arrivals["kind"] == CLOSED_LOOP:
        users = arrivals["users"]
        return f"{users} user{'s' * (users != 1)}"
    rate = arrivals.get("rate")
    asked = f", {number(float(rate))} requests/s" if rate is not None else ""
    return f"{arrivals['kind']}{asked}"


def how_it_was_made(recording: Recording) -> list[str]:
    """Return everything that was asked for, one line each."""
    run, window = recording.run, recording.window
    lines = [
        f"server: {run.url}, begun {run.started_at}",
        f"arrivals: {settings(run.arrivals)}",
        f"window: from {number(window.opened)} s to {number(window.closed)} s after the start",
    ]
    for name, values in (
        ("work", run.work),
        ("settings", run.settings),
        ("generator", run.generator),
        ("objective", run.objective or {}),
    ):
        if values:
            lines.append(f"{name}: {settings(values)}")
    return lines


def settings(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {_short(value)}" for name, value in values.items() if value is not None
    )


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({settings(value)})"
    if isinstance(value, list | tuple):
        return " ".join(map(_short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
