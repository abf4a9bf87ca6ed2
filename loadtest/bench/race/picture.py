"""Draws where the time goes, a bar for each batch size. Needs matplotlib."""

from collections.abc import Iterator
from pathlib import Path

from matplotlib.figure import Figure

from loadtest.bench.race.breakdown import Breakdown
from loadtest.bench.race.costs import PRODUCTS
from loadtest.bench.race.roofline import Roofline

NUM_OPERATORS = 7  # the rest is drawn as one
_DOTS_PER_INCH = 150
_BEST = "products at the machine's peak"


def draw(roofline: Roofline, path: Path) -> None:
    """Stack each batch size's time, in percent of the whole, in the format of the path's suffix."""
    bars = [dict(parts_of(roofline, found)) for found in roofline.breakdowns]
    labels = [f"{found.batch}" for found in roofline.breakdowns]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    bottoms = [0.0] * len(bars)
    for number, name in enumerate(_names(bars)):
        heights = [100 * bar.get(name, 0.0) for bar in bars]
        axes.bar(labels, heights, 0.6, bottoms, label=name, color=f"C{number % 10}")
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set(xlabel="rows in the batch", ylabel="percent of the time", ylim=(0, 100))
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def parts_of(roofline: Roofline, found: Breakdown) -> Iterator[tuple[str, float]]:
    """Yield the parts of the whole time, those of the step graph by operator, as shares."""
    operators = dict(found.operators)
    products = sum(operators.pop(name, 0.0) for name in PRODUCTS)
    least = found.num_tokens * roofline.step.multiply_adds / roofline.product_peak
    largest = sorted(operators, key=lambda name: -operators[name])[:NUM_OPERATORS]
    parts = {
        _BEST: min(least, products),
        "products, the rest": max(products - least, 0.0),
        **{name: operators.pop(name) for name in largest},
        "other operators": sum(operators.values()),
        "encoding, prefilling": found.reading,
        "host": found.host,
    }
    for name, seconds in parts.items():
        yield name, seconds / found.seconds


def _names(bars: list[dict[str, float]]) -> list[str]:
    """Return the names of all parts, operators between products and the others."""
    names = list(dict.fromkeys(name for bar in bars for name in bar))
    last = ("other operators", "encoding, prefilling", "host")
    return [name for name in names if name not in last] + list(last)
