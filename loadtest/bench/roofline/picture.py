"""Draws where the time goes, a bar for each batch size. Needs matplotlib."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib.figure import Figure

from loadtest.bench.roofline.breakdown import Breakdown
from loadtest.bench.roofline.costs import PRODUCTS
from loadtest.bench.roofline.limits import Roofline

NUM_OPERATORS = 8  # the rest is drawn as one
_DOTS_PER_INCH = 150


def draw(roofline: Roofline, path: Path) -> None:
    """Stack each batch size's time, in percent of the whole, in the format of the path's suffix."""
    operators = largest_operators(roofline.breakdowns)
    bars = [parts_of(roofline, found, operators) for found in roofline.breakdowns]
    labels = [str(found.batch) for found in roofline.breakdowns]
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    bottoms = [0.0] * len(bars)
    for number, name in enumerate(bars[0]):
        heights = [100 * bar[name] for bar in bars]
        axes.bar(labels, heights, 0.6, bottoms, label=name, color=colormaps["tab20"](number))
        bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
    axes.set(xlabel="rows in the batch", ylabel="percent of the time", ylim=(0, 100))
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles[::-1], names[::-1], loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def largest_operators(breakdowns: Sequence[Breakdown]) -> list[str]:
    """Name the operators, but products, that take most over all batch sizes."""
    total: Counter[str] = Counter()
    for found in breakdowns:
        shares = {name: each / found.seconds for name, each in found.operators.items()}
        total.update({name: share for name, share in shares.items() if name not in PRODUCTS})
    return [name for name, _ in total.most_common(NUM_OPERATORS)]


def parts_of(roofline: Roofline, found: Breakdown, shown: Sequence[str]) -> dict[str, float]:
    """Return the parts of the whole time as shares, from the bottom of the bar to its top.

    shown: operators that have parts of their own.
    """
    operators = dict(found.operators)
    products = sum(operators.pop(name, 0.0) for name in PRODUCTS)
    least = min(found.num_tokens * roofline.step.multiply_adds / roofline.product_peak, products)
    parts = {
        "products, at the peak": least,
        "products, the rest": products - least,
        **{name: operators.pop(name, 0.0) for name in shown},
        "other operators": sum(operators.values()),
        "encoding, prefilling": found.reading,
        "host": found.host,
    }
    return {name: seconds / found.seconds for name, seconds in parts.items()}
