"""Draws one run: how long requests took, and what went on from second to second."""

import numpy as np
from numpy.typing import NDArray

from loadtest.records import counted
from loadtest.reporting.plots import (
    Axis,
    Curve,
    Kind,
    Mark,
    Plot,
    Scale,
    from_zero,
    logarithmic,
    thinned,
    values,
)
from loadtest.statistics.estimates import PERCENTS
from loadtest.statistics.figures import Figures
from loadtest.statistics.measures import MEASURES, samples_of

Values = NDArray[np.float64]

FEWEST = 10
BINS = 40
ROLES = {"ttft": "first", "e2e": "second", "itl": "third", "tpot": "third"}


def milliseconds(figures: Figures, name: str) -> Values:
    """Return a measure's values in rising order."""
    return np.sort(samples_of(counted(figures.recording), MEASURES[name]).values) * 1000


def latency_plots(figures: Figures) -> list[Plot]:
    found = {name: milliseconds(figures, name) for name in ("ttft", "e2e")}
    shown = {name: each for name, each in found.items() if len(each) >= FEWEST}
    if not shown:
        return []
    plots = [cumulative_plot(figures, shown), tail_plot(figures, shown)]
    for name in ("ttft", "itl"):
        each = milliseconds(figures, name)
        if len(each) >= FEWEST:
            plots.append(histogram(name, each))
    return plots


def cumulative_plot(figures: Figures, shown: dict[str, Values]) -> Plot:
    curves = []
    for name, each in shown.items():
        curves.append(cumulative(MEASURES[name].title, each, ROLES[name]))
        curves.append(_percentile_dots(figures, name))
    low = min(float(np.quantile(each, 0.001)) for each in shown.values())
    high = max(float(each[-1]) for each in shown.values())
    return Plot(
        title="How many answers took at most so long",
        caption="Dots: p50, p90, p95, p99 and p99.9, where there are samples enough for them.",
        x=logarithmic("milliseconds", low, high),
        y=Axis("percent of answers", 0, 100),
        curves=curves,
    )


def cumulative(title: str, ordered: Values, role: str) -> Curve:
    keep = thinned(len(ordered))
    return Curve(title, ordered[keep], 100 * (keep + 1) / len(ordered), role)


def _percentile_dots(figures: Figures, name: str) -> Curve:
    known = {p: e.value for p, e in figures.distributions[name].percentiles.items() if e.value}
    shown = {p: value * 1000 for p, value in known.items() if p != 75.0}
    labels = [f"p{percent:g}" for percent in shown]
    dots = values([*shown.values()]), values([*shown])
    return Curve(
        f"{MEASURES[name].title}, percentiles", *dots, ROLES[name], Kind.DOTS, labels=labels
    )


def tail_plot(figures: Figures, shown: dict[str, Values]) -> Plot:
    """Draw latency over percentiles, with as much room for each further nine, as HdrHistogram does;
    a band is the 95 % interval.
    """
    curves = []
    for name, each in shown.items():
        percents = 100 * (1 - np.geomspace(1, 1 / len(each), 200))
        curve = np.quantile(each, percents / 100)
        curves.append(Curve(MEASURES[name].title, percents, curve, ROLES[name]))
        if (band := _band(figures, name)) is not None:
            curves.append(band)
    highest = max(100 * (1 - 1 / len(each)) for each in shown.values())
    return Plot(
        title="The tail",
        caption="Latency by percentile; each nine has the same room. Bands: 95 % intervals.",
        x=Axis("percentile", 0, highest, Scale.NINES),
        y=from_zero("milliseconds", *(curve.y for curve in curves)),
        curves=curves,
    )


def _band(figures: Figures, name: str) -> Curve | None:
    found = figures.distributions[name].percentiles
    known = [(p, e.low, e.high) for p in PERCENTS if (e := found[p]).low and e.high]
    if len(known) < 2:
        return None
    x, low, high = values(known).T
    title = f"{MEASURES[name].title}, 95 % interval"
    return Curve(title, x, low * 1000, ROLES[name], Kind.BAND, upper=high * 1000)


def histogram(name: str, ordered: Values) -> Plot:
    """Draw a histogram with bins of equal width up to what all but the slowest 0.5 % took."""
    high = float(np.quantile(ordered, 0.995)) or 1.0
    edges = np.linspace(0.0, high, BINS + 1)
    share = 100 * np.histogram(ordered, edges)[0] / len(ordered)
    bars = Curve("share", edges, np.append(share, 0.0), ROLES[name], Kind.BARS)
    median, p95 = np.quantile(ordered, [0.5, 0.95])
    return Plot(
        title=MEASURES[name].title.capitalize(),
        caption=f"{len(ordered):,} samples; the slowest 0.5 % lie beyond the right edge.",
        x=Axis("milliseconds", 0.0, high),
        y=from_zero("percent of samples", share),
        curves=[bars],
        marks=[Mark(float(median), "p50"), Mark(float(p95), "p95")],
    )


def time_plots(figures: Figures) -> list[Plot]:
    plots = [rate_plot(figures), latency_over_time(figures), in_flight_plot(figures)]
    return [*plots, tokens_plot(figures)] if figures.series.tokens.any() else plots


def _over_time(figures: Figures, title: str, caption: str, label: str, curves: list[Curve]) -> Plot:
    found, window = figures.series, figures.recording.window
    end = float(found.times[-1]) + found.width
    return Plot(
        title=title,
        caption=caption,
        x=Axis("seconds since the start", 0.0, end),
        y=from_zero(label, *(curve.y for curve in curves)),
        curves=curves,
        outside=[(0.0, window.opened), (window.closed, end)],
    )


def rate_plot(figures: Figures) -> Plot:
    found = figures.series
    curves = [
        Curve("offered", found.times, found.offered, "quiet", Kind.STEPS),
        Curve("answered", found.times, found.answered, "first", Kind.STEPS),
    ]
    if found.failed.any():
        curves.append(Curve("errors", found.times, found.failed, "bad", Kind.STEPS))
    caption = "Requests offered and answered each second. Shaded: outside the window."
    return _over_time(figures, "Requests", caption, "requests/s", curves)


def latency_over_time(figures: Figures) -> Plot:
    found = figures.series
    name = "ttft" if found.latencies["ttft"] else "e2e"
    curves = [
        Curve(f"p{percent:g}", found.times, each * 1000, "first", is_dashed=percent != 50.0)
        for percent, each in found.latencies[name].items()
    ]
    title = f"{MEASURES[name].title} over time".capitalize()
    caption = "Percentiles of the requests that were due in each second."
    return _over_time(figures, title, caption, "milliseconds", curves)


def in_flight_plot(figures: Figures) -> Plot:
    found = figures.series
    curves = [Curve("in flight", found.times, found.in_flight, "second", Kind.STEPS)]
    caption = "Requests under way at the end of each second; where it rises, a queue grows."
    return _over_time(figures, "Under way", caption, "requests", curves)


def tokens_plot(figures: Figures) -> Plot:
    found = figures.series
    curves = [Curve("tokens", found.times, found.tokens, "third", Kind.STEPS)]
    caption = "Tokens of the answers that ended in each second."
    return _over_time(figures, "Generated tokens", caption, "tokens/s", curves)
