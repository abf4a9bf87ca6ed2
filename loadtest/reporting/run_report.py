"""Decides what the report of one run says, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadtest.records import CANCELLED, CLOSED_LOOP, Recording, Run
from loadtest.reporting.document import (
    BAD,
    GOOD,
    QUIET,
    Cell,
    Document,
    Notes,
    Section,
    Table,
    Tile,
    Tiles,
)
from loadtest.reporting.numbers import UNKNOWN, change, figure, interval, number, percent
from loadtest.reporting.run_plots import latency_plots, time_plots
from loadtest.statistics.estimates import PERCENTS, Distribution, Estimate
from loadtest.statistics.figures import Figures, errors
from loadtest.statistics.limits import Verdict
from loadtest.statistics.measures import MEASURES
from loadtest.statistics.server import Comparison

RATES = {
    "answers_per_second": "answers/s",
    "offered_per_second": "offered/s",
    "tokens_per_second": "generated tokens/s",
    "prompt_tokens_per_second": "prompt tokens/s",
    "sentences_per_second": "sentences/s",
    "words_per_second": "words/s",
    "characters_per_second": "characters/s",
}
INTERVALS = "Small print: 95 % confidence intervals; ? is a side that the samples do not bound."


def run_report(figures: Figures, assertions: Sequence[Verdict] = ()) -> Document:
    recording = figures.recording
    return Document(
        title=f"Load test of {recording.run.url}",
        subtitle=f"{load_of(recording.run)}, measured for {number(recording.seconds)} s",
        sections=[
            Section("Summary", [*_warnings(figures), _tiles(figures)]),
            *verdict_sections(figures.objective, assertions),
            Section("Latency", [latency_table(figures), *latency_plots(figures)]),
            Section("Throughput", [_rates(figures), *time_plots(figures)]),
            *_goodput(figures),
            Section("Errors", [_errors(figures)]),
            *_parts(figures),
            *_server(figures),
            Section("How it was measured", [Notes(how_it_was_made(recording))], is_brief=False),
            Section("Definitions", [Notes(definitions())], is_brief=False),
        ],
    )


def _warnings(figures: Figures) -> list[Notes]:
    return [Notes(figures.cautions, is_warning=True)] if figures.cautions else []


def _tiles(figures: Figures) -> Tiles:
    named = figures.named
    tiles = [_tile("answers", named["answers_per_second"], "/s")]
    if figures.tokens_counted_by:
        tiles.append(_tile("generated tokens", named["tokens_per_second"], "/s"))
    if named["ttft_p50_ms"].value is not None:
        tiles.append(_tile("time to first token, p95", named["ttft_p95_ms"], "ms"))
        tiles.append(_tile("inter-token latency, p99", named["itl_p99_ms"], "ms"))
    else:
        tiles.append(_tile("end to end, p50", named["e2e_p50_ms"], "ms"))
        tiles.append(_tile("end to end, p99", named["e2e_p99_ms"], "ms"))
    if figures.goodput:
        share = named["goodput_share"].value
        note = f"{percent(share)} of requests" if share is not None else ""
        tiles.append(Tile("goodput", figure(named["goodput_per_second"]), "/s", note))
    failed = named["error_rate"].value
    text = UNKNOWN if failed is None else percent(failed)
    tiles.append(
        Tile("errors", text, "", f"{figure(named['errors'])} requests", BAD if failed else "")
    )
    return Tiles(tiles)


def _tile(label: str, found: Estimate, unit: str) -> Tile:
    return Tile(label, figure(found), unit, interval(found) or found.reason)


def verdict_sections(objective: Sequence[Verdict], asserted: Sequence[Verdict]) -> list[Section]:
    found = [("Objective", objective), ("Assertions", asserted)]
    return [Section(title, [verdicts(each)]) for title, each in found if each]


def verdicts(found: Sequence[Verdict]) -> Table:
    rows = [
        [
            Cell(str(verdict.limit)),
            Cell(figure(verdict.measured), interval(verdict.measured) or verdict.measured.reason),
            Cell("kept", tone=GOOD) if verdict.is_kept else Cell("not kept", tone=BAD),
        ]
        for verdict in found
    ]
    return Table(["limit", "measured", "verdict"], rows)


def latency_table(figures: Figures) -> Table:
    shown = {name: found for name, found in figures.distributions.items() if found.count}
    if figures.recording.is_closed_loop:
        shown.pop("queue", None)  # there, requests are due when they are sent
    reasons = {
        estimate.reason.partition(", ")[2]
        for found in shown.values()
        for estimate in found.percentiles.values()
        if estimate.value is None
    }
    note = f"- stands for too few samples: {', '.join(sorted(reasons))}. " if reasons else ""
    return Table(
        ["milliseconds", "samples", "mean", *(f"p{p:g}" for p in PERCENTS), "max"],
        [_latency_row(MEASURES[name].title, found) for name, found in shown.items()],
        note + INTERVALS,
    )


def _latency_row(title: str, found: Distribution) -> list[Cell]:
    estimates = [found.mean, *found.percentiles.values(), found.maximum]
    cells = [Cell(figure(e), interval(e)) for e in (each.scaled(1000) for each in estimates)]
    return [Cell(title), Cell(number(found.count)), *cells]


def _rates(figures: Figures) -> Table:
    rows = [
        [Cell(title), Cell(figure(figures.named[name])), Cell(interval(figures.named[name]))]
        for name, title in RATES.items()
        if figures.named[name].value is not None
    ]
    fair = figures.fairness
    if fair.index.value is not None:
        rows.append(
            [Cell(f"fairness (Jain's index of {fair.shared})"), Cell(figure(fair.index)), Cell("")]
        )
        worst = figures.named["worst_user_e2e_p95_ms"]
        rows.append(
            [Cell("worst user's p95 end to end, ms"), Cell(figure(worst)), Cell(interval(worst))]
        )
    counted = figures.tokens_counted_by
    by = f"by {counted}" if counted else "neither by the answers nor by the server's metrics"
    return Table(["", "mean", "95 % interval"], rows, f"Generated tokens are counted {by}.")


def _goodput(figures: Figures) -> list[Section]:
    found = figures.goodput
    if found is None:
        return []
    rows = [
        [
            Cell(f"{MEASURES[name].title} at most {number(most * 1000)} ms"),
            Cell(number(found.broken[name])),
        ]
        for name, most in found.limits.items()
    ]
    share = found.share.value
    note = (
        f"{figure(found.per_second)} requests/s ({percent(share or 0.0)} of all) were answered "
        "within all limits. A limit on inter-token latency is one on an answer's longest gap."
    )
    return [Section("Goodput", [Table(["limit on a request", "answers beyond it"], rows, note)])]


def _errors(figures: Figures) -> Table | Notes:
    rows = [[Cell(kind, tone=BAD), Cell(number(n))] for kind, n in errors(figures).items()]
    others = {"cut off on purpose": figures.outcomes.get(CANCELLED, 0)}
    others["bad requests, refused as they should be"] = figures.refused_as_meant
    rows += [[Cell(kind, tone=QUIET), Cell(number(n))] for kind, n in others.items() if n]
    return Table(["kind", "requests"], rows) if rows else Notes(["none"])


def _parts(figures: Figures) -> list[Section]:
    columns = [
        ("ttft", 50.0),
        ("ttft", 95.0),
        ("tpot", 50.0),
        ("e2e", 50.0),
        ("e2e", 95.0),
        ("e2e", 99.0),
    ]
    rows = [
        [
            Cell(part.name),
            Cell(number(part.answers)),
            Cell(number(part.failures)),
            *(
                Cell(figure(e), interval(e))
                for name, p in columns
                for e in [part.distributions[name].percentiles.get(p, Estimate(None)).scaled(1000)]
            ),
        ]
        for part in figures.parts
    ]
    header = ["milliseconds", "answers", "errors", *(f"{name} p{p:g}" for name, p in columns)]
    return [Section("By kind of request", [Table(header, rows)])] if rows else []


def _server(figures: Figures) -> list[Section]:
    if not figures.server:
        return []
    rows = [_compared(each) for each in figures.server]
    note = (
        "Over the window, from scrapes of /metrics. The server's times are without the network, "
        "its percentiles are interpolated in the buckets of histograms, and what was under way at "
        "the ends of the window counts differently."
    )
    header = ["milliseconds or counts", "client", "server", "difference"]
    return [Section("The server's own view", [Table(header, rows, note)])]


def _compared(found: Comparison) -> list[Cell]:
    factor = 1000 if found.is_time else 1
    client = UNKNOWN if found.client is None else number(found.client * factor)
    differs = UNKNOWN if found.difference is None else change(found.difference)
    return [Cell(found.name), Cell(client), Cell(number(found.server * factor)), Cell(differs)]


def definitions() -> list[str]:
    return [
        *(f"{measure.title} ({name}): {measure.definition}" for name, measure in MEASURES.items()),
        "requests count that were due in the window (open loop) or ended in it (closed loop); "
        "rates count what ended in it",
        "percentiles are interpolated linearly; their intervals come from order statistics, those "
        "of pooled gaps from Woodruff's method with whole answers as clusters, those of rates from "
        "ten batch means",
        "intervals take requests as independent; where a queue makes neighbours alike, the truth "
        "is less certain than they say",
        "goodput: requests per second that were answered within every limit on a request",
        "fairness: Jain's index, 1 where all users got the same, 1/n where one got everything",
    ]


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
