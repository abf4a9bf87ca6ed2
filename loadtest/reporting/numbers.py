"""How figures are written: with three significant digits."""

from loadtest.statistics.estimates import Estimate

UNKNOWN = "-"


def number(value: float) -> str:
    """Write a number with three significant digits, and as an integer from 100 on."""
    if value == int(value) and abs(value) < 1e6:
        return f"{value:,.0f}"
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}"
    if abs(value) >= 0.9995:
        return f"{value:.2f}"
    return f"{value:.3g}"


def percent(value: float) -> str:
    """Write a share in percent; near 0 and 1 with more digits."""
    if value in (0.0, 1.0):
        return f"{100 * value:.0f} %"
    digits = 1 if 0.01 <= value <= 0.99 else 2
    return f"{100 * value:.{digits}f} %"


def figure(estimate: Estimate) -> str:
    return UNKNOWN if estimate.value is None else number(estimate.value)


def interval(estimate: Estimate) -> str:
    """Write the confidence interval; an unbounded side is a question mark."""
    if estimate.value is None or (estimate.low is None and estimate.high is None):
        return ""
    low, high = ("?" if bound is None else number(bound) for bound in (estimate.low, estimate.high))
    return f"{low}–{high}"


def change(part: float) -> str:
    return f"{100 * part:+.1f} %"
