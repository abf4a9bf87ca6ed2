"""The Load tab: quantiles are those of Prometheus, times have units, and an idle server says so."""

import json
from typing import Any

import pytest

from tests.serving.api.page.browser import Page, needs_browser

pytestmark = [needs_browser, pytest.mark.full]
CALL = """
const [file, name, values, done] = arguments;
import(new URL(file, document.baseURI)).then((module) => done(module[name](...values)));
"""


def call(page: Page, file: str, name: str, *values: Any) -> Any:
    """Return what an exported function of the page answers."""
    page.driver.set_script_timeout(10)
    return page.driver.execute_async_script(CALL, file, name, values)


def buckets(**counts: int) -> list[list[Any]]:
    """Return samples of a histogram: cumulative counts by bound, after an underscore."""
    return [["h_bucket", f'le="{bound[1:]}"', count] for bound, count in counts.items()]


NONE = buckets(_1=0, _2=0, _4=0, **{"_+Inf": 0})


# The figures are those of `histogram_quantile` in Prometheus 3.
@pytest.mark.parametrize(
    ("share", "counts", "seconds"),
    [
        (0.5, {"_1": 0, "_2": 10, "_4": 10, "_+Inf": 10}, 1.5),
        (0.5, {"_1": 4, "_2": 4, "_4": 8, "_+Inf": 8}, 1.0),
        (0.95, {"_1": 2, "_2": 6, "_4": 10, "_+Inf": 10}, 3.75),
        (0.5, {"_1": 8, "_2": 8, "_4": 8, "_+Inf": 8}, 0.5),
        (0.5, {"_1": 0, "_2": 0, "_4": 0, "_+Inf": 3}, 4),
        (0.5, {"_1": 0, "_2": 0, "_4": 0, "_+Inf": 0}, None),
    ],
)
def test_quantiles_are_interpolated_as_prometheus_does(
    page: Page, share: float, counts: dict[str, int], seconds: float | None
) -> None:
    readings = {"now": buckets(**counts), "then": NONE}
    quantile = call(page, "page/watch/metrics.js", "quantile", share, readings, "h")
    assert quantile == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0042, "4.2 ms"), (0.25, "250 ms"), (1, "1 s"), (7.45, "7.5 s"), (60, "60 s")),
        (150, "2.5 min"),
    ],
)
def test_times_have_the_units_of_people(page: Page, seconds: float, text: str) -> None:
    assert call(page, "page/watch/units.js", "formatSeconds", seconds) == text


def test_a_chart_has_axes_and_says_what_it_shows(page: Page) -> None:
    page.tab("load")
    page.write("llama-en", "It was")
    page.tab("load")
    cards = {card.find_element("css selector", "h2").text: card for card in page.all(".card.idle")}
    assert "Refused or failed" in cards
    assert "are drawn here" in cards["Refused or failed"].text

    page.until(lambda: page.all("#charts .card:not(.idle)"))
    [times] = [card for card in page.all("#charts .card") if "Time of a request" in card.text]
    page.until(lambda: "idle" not in (times.get_attribute("class") or "").split())
    lines = times.text.split("\n")
    assert lines[1] == "half within" and lines[2].endswith((" ms", " s"))
    ticks = [tick.text for tick in times.find_elements("css selector", ".scale-aside span")]
    assert ticks[0] == "0 ms" and ticks[2].endswith((" ms", " s"))
    assert lines[-3:] == ["2 min ago", "1 min ago", "now"]
    [path, *_] = times.find_elements("css selector", "path")
    assert (path.get_attribute("d") or "").startswith("M")
    assert json.dumps(ticks).count("NaN") == 0
