"""The report of one run, and what other reports share with it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.records import CANCELLED, CLOSED_LOOP, Recording, RunRecord
from loadtest.reporting.document import (
    BAD,
    GOOD,
    QUIET,
    Cell,
    Notes,
    ReportDocument,
    ReportSection,
    ReportTable,
    Tile,
    Tiles,
    measured_cell,
)
from loadtest.reporting.numbers import UNKNOWN, figure, interval, number, percent
from loadtest.reporting.plots import (
    Curve,
    CurveKind,
    Plot,
    PlotAxis,
    from_zero,
    logarithmic,
    thin_out,
    values,
)
from loadtest.statistics.estimates import PERCENTS, Distribution, Estimate
from loadtest.statistics.figures import Figures, errors
from loadtest.statistics.limits import Verdict
from loadtest.statistics.measures import MEASURES, samples_of

RATES = {
    "answers_per_second": "answers/s",
    "offered_per_second": "offered/s",
    "tokens_per_second": "generated tokens/s",
    "sentences_per_second": "sentences/s",
}
INTERVALS = "Small print: 95 % confidence intervals; ? is a side that the samples do not bound."
FEWEST = 10  # values that a curve takes
ROLES = {"ttft": "first", "e2e": "second", "itl": "third"}


def run_report(figures: Figures, assertions: Sequence[Verdict] = ()) -> ReportDocument:
    recording = figures.recording
    verdicts = [("Objective", figures.objective), ("Assertions", assertions)]
    return ReportDocument(
        title=f"Load test of {recording.run.url}",
        subtitle=f"{load_of(recording.run)}, measured for {number(recording.seconds)} s",
        sections=[
            ReportSection("Summary", [*warnings({"": figures}), _tiles(figures)]),
            *(
                ReportSection(title, [_verdicts(verdicts_of_kind)])
                for title, verdicts_of_kind in verdicts
                if verdicts_of_kind
            ),
            ReportSection("Latency", [_latency_table(figures), *_latency_plots(figures)]),
            ReportSection("Throughput", [_rates(figures), *_time_plots(figures)]),
            *_goodput(figures),
            ReportSection("Errors", [_errors(figures)]),
            *closing_sections({"it": recording}),
        ],
    )


def warnings(runs: Mapping[str, Figures]) -> list[Notes]:
    """Return the warnings of runs by the names that they have in the report."""
    lines = [
        f"{name}: {line}" if name else line
        for name, figures in runs.items()
        for line in figures.warnings
    ]
    return [Notes(lines, is_warning=True)] if lines else []


def closing_sections(recordings: Mapping[str, Recording]) -> list[ReportSection]:
    """Return what was asked for, for each run by its name, and how figures are defined."""
    return [
        *(
            ReportSection(
                f"How {name} was measured", [Notes(how_it_was_made(recording))], is_brief=False
            )
            for name, recording in recordings.items()
        ),
        ReportSection("Definitions", [Notes(_definitions())], is_brief=False),
    ]


def _tiles(figures: Figures) -> Tiles:
    named = figures.named
    tiles = [tile("answers", named["answers_per_second"], "/s")]
    if figures.tokens_counted_by:
        tiles.append(tile("generated tokens", named["tokens_per_second"], "/s"))
    if named["p50_ttft_ms"].value is not None:
        tiles.append(tile("time to first token, p95", named["p95_ttft_ms"], "ms"))
        tiles.append(tile("inter-token latency, p99", named["p99_itl_ms"], "ms"))
    else:
        tiles.append(tile("end to end, p50", named["p50_e2e_ms"], "ms"))
        tiles.append(tile("end to end, p99", named["p99_e2e_ms"], "ms"))
    if figures.goodput:
        share = named["goodput_share"].value
        note = f"{percent(share)} of requests" if share is not None else ""
        tiles.append(Tile("goodput", figure(named["goodput_per_second"]), "/s", note))
    failed = named["error_rate"].value
    text = UNKNOWN if failed is None else percent(failed)
    tone = BAD if failed else ""
    return Tiles([*tiles, Tile("errors", text, "", f"{figure(named['errors'])} requests", tone)])


def tile(label: str, estimate: Estimate, unit: str) -> Tile:
    return Tile(label, figure(estimate), unit, interval(estimate) or estimate.reason)


def _verdicts(verdicts: Sequence[Verdict]) -> ReportTable:
    rows = [
        [
            Cell(str(verdict.limit)),
            Cell(figure(verdict.measured), interval(verdict.measured) or verdict.measured.reason),
            Cell("kept", tone=GOOD) if verdict.is_kept else Cell("not kept", tone=BAD),
        ]
        for verdict in verdicts
    ]
    return ReportTable(["limit", "measured", "verdict"], rows)


def _latency_table(figures: Figures) -> ReportTable:
    distributions = {
        name: distribution
        for name, distribution in figures.distributions.items()
        if distribution.count
    }
    if figures.recording.is_closed_loop:
        distributions.pop("queue", None)  # there, requests are due when they are sent
    reasons = {
        estimate.reason.partition(", ")[2]
        for distribution in distributions.values()
        for estimate in distribution.percentiles.values()
        if estimate.value is None
    }
    note = f"- stands for too few samples: {', '.join(sorted(reasons))}. " if reasons else ""
    return ReportTable(
        ["milliseconds", "samples", "mean", *(f"p{p:g}" for p in PERCENTS), "max"],
        [
            _latency_row(MEASURES[name].title, distribution)
            for name, distribution in distributions.items()
        ],
        note + INTERVALS,
    )


def _latency_row(title: str, distribution: Distribution) -> list[Cell]:
    estimates = [distribution.mean, *distribution.percentiles.values(), distribution.maximum]
    cells = [measured_cell(estimate.scale(1000)) for estimate in estimates]
    return [Cell(title), Cell(number(distribution.count)), *cells]


def _rates(figures: Figures) -> ReportTable:
    rows = [
        [Cell(title), Cell(figure(figures.named[name])), Cell(interval(figures.named[name]))]
        for name, title in RATES.items()
        if figures.named[name].value is not None
    ]
    counted = figures.tokens_counted_by
    by = f"by {counted}" if counted else "neither by the answers nor by the server's metrics"
    return ReportTable(["", "mean", "95 % interval"], rows, f"Generated tokens are counted {by}.")


def _goodput(figures: Figures) -> list[ReportSection]:
    goodput = figures.goodput
    if goodput is None:
        return []
    rows = [
        [
            Cell(f"{MEASURES[name].title} at most {number(most * 1000)} ms"),
            Cell(number(goodput.broken[name])),
        ]
        for name, most in goodput.limits.items()
    ]
    note = (
        f"{figure(goodput.per_second)} requests/s ({percent(goodput.share.value or 0.0)} of all) "
        "were answered within all limits. A limit on inter-token latency is one on the longest gap."
    )
    return [
        ReportSection(
            "Goodput", [ReportTable(["limit on a request", "answers beyond it"], rows, note)]
        )
    ]


def _errors(figures: Figures) -> ReportTable | Notes:
    rows = [[Cell(kind, tone=BAD), Cell(number(n))] for kind, n in errors(figures).items()]
    if cancelled := figures.outcomes.get(CANCELLED, 0):
        rows.append([Cell("cut off on purpose", tone=QUIET), Cell(number(cancelled))])
    return ReportTable(["kind", "requests"], rows) if rows else Notes(["none"])


def _definitions() -> list[str]:
    return [
        *(f"{measure.title} ({name}): {measure.definition}" for name, measure in MEASURES.items()),
        "requests count that were due in the window (open loop) or ended in it (closed loop); "
        "rates count what ended in it",
        "percentiles are interpolated linearly; their intervals come from order statistics, those "
        "of pooled gaps with whole answers as clusters, those of rates from ten batch means",
        "intervals take requests as independent; if neighbours are alike because of a queue, the "
        "truth is less certain than they say",
        "goodput: requests per second that were answered within every limit on a request",
    ]


def load_of(run: RunRecord) -> str:
    """Name the load in a few words, such as "32 users" or "poisson, 50 requests/s"."""
    arrivals = run.arrivals
    if arrivals["kind"] == CLOSED_LOOP:
        users = arrivals["users"]
        return f"{users} user{'s' * (users != 1)}"
    return f"{arrivals['kind']}, {number(float(arrivals['rate']))} requests/s"


def how_it_was_made(recording: Recording) -> list[str]:
    """Return everything that was asked for, a line for each part."""
    run, window = recording.run, recording.window
    parts = {"work": run.work, "settings": run.settings, "objective": run.objective}
    return [
        f"server: {run.url}, begun {run.started_at}",
        f"arrivals: {settings(run.arrivals)}",
        f"window: from {number(window.opened)} s to {number(window.closed)} s after the start",
        *(f"{name}: {settings(values)}" for name, values in parts.items() if values),
    ]


def settings(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {short(value)}" for name, value in values.items() if value is not None
    )


def short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(short, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def milliseconds(figures: Figures, name: str) -> NDArray[np.float64]:
    """Return the values of a latency in rising order."""
    return np.sort(samples_of(figures.recording.requests_in_window(), MEASURES[name]).values) * 1000


def cumulative(title: str, ordered: NDArray[np.float64], role: str) -> Curve:
    keep = thin_out(len(ordered))
    return Curve(title, ordered[keep], 100 * (keep + 1) / len(ordered), role)


def _latency_plots(figures: Figures) -> list[Plot]:
    """Draw how many answers took at most how long, and the same of the gaps between tokens."""
    plots = []
    for title, names in (("answers", ("ttft", "e2e")), ("gaps between tokens", ("itl",))):
        samples = {name: milliseconds(figures, name) for name in names}
        samples_shown = {
            name: seconds_of_requests
            for name, seconds_of_requests in samples.items()
            if len(seconds_of_requests) >= FEWEST
        }
        if samples_shown:
            plots.append(_cumulative_plot(figures, title, samples_shown))
    return plots


def _cumulative_plot(figures: Figures, title: str, samples: dict[str, NDArray[np.float64]]) -> Plot:
    curves = []
    for name, times in samples.items():
        curves.append(cumulative(MEASURES[name].title, times, ROLES[name]))
        curves.append(_percentile_dots(figures, name))
    low = min(float(np.quantile(times, 0.001)) for times in samples.values())
    high = max(float(times[-1]) for times in samples.values())
    return Plot(
        title=f"How many {title} took at most so long",
        caption="Dots: p50, p90, p95, p99 and p99.9, where there are enough samples for them.",
        x=logarithmic("milliseconds", low, high),
        y=PlotAxis(f"percent of {title}", 0, 100),
        curves=curves,
    )


def _percentile_dots(figures: Figures, name: str) -> Curve:
    percentiles = {
        p: e.value for p, e in figures.distributions[name].percentiles.items() if e.value
    }
    milliseconds_of = {p: value * 1000 for p, value in percentiles.items() if p != 75.0}
    labels = [f"p{percent:g}" for percent in milliseconds_of]
    dots = values([*milliseconds_of.values()]), values([*milliseconds_of])
    return Curve(
        f"{MEASURES[name].title}, percentiles", *dots, ROLES[name], CurveKind.DOTS, labels=labels
    )


def _time_plots(figures: Figures) -> list[Plot]:
    series = figures.series
    name = "ttft" if series.latencies["ttft"] else "e2e"
    requests = [
        Curve("offered", series.times, series.offered, "quiet", CurveKind.STEPS),
        Curve("answered", series.times, series.answered, "first", CurveKind.STEPS),
    ]
    if series.failed.any():
        requests.append(Curve("errors", series.times, series.failed, "bad", CurveKind.STEPS))
    latencies = [
        Curve(f"p{percent:g}", series.times, by_time * 1000, "first", is_dashed=percent != 50.0)
        for percent, by_time in series.latencies[name].items()
    ]
    in_flight = Curve("in flight", series.times, series.in_flight, "second", CurveKind.STEPS)
    return [
        _over_time(
            figures,
            "Requests",
            "Requests offered and answered each second. Shaded: outside the window.",
            "requests/s",
            requests,
        ),
        _over_time(
            figures,
            f"{MEASURES[name].title} over time".capitalize(),
            "Percentiles of the requests that were due in each second.",
            "milliseconds",
            latencies,
        ),
        _over_time(
            figures,
            "In flight",
            "Requests in flight at the end of each second; where it rises, a queue grows.",
            "requests",
            [in_flight],
        ),
    ]


def _over_time(figures: Figures, title: str, caption: str, label: str, curves: list[Curve]) -> Plot:
    series, window = figures.series, figures.recording.window
    end = float(series.times[-1]) + series.width
    return Plot(
        title=title,
        caption=caption,
        x=PlotAxis("seconds since the start", 0.0, end),
        y=from_zero(label, *(curve.y for curve in curves)),
        curves=curves,
        outside=[(0.0, window.opened), (window.closed, end)],
    )
