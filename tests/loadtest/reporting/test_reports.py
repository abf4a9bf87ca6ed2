"""Tests what reports say, in every form they take."""

import json
import re
from html.parser import HTMLParser

import jsonschema
import pytest

from loadtest.options import ReportOptions
from loadtest.reporting.document import as_markdown, as_text
from loadtest.reporting.page import as_page
from loadtest.reporting.reports import LoadReport, report_loads, report_run
from loadtest.statistics.figures import figures_of
from loadtest.statistics.limits import parse_assertion
from tests.loadtest.recordings import recording_of, request_of, simulated, streamed

OBJECTIVE = {"p95_ttft_ms": 200.0}
ESTIMATE = {
    "type": "object",
    "required": ["value", "low", "high"],
    "properties": {name: {"type": ["number", "null"]} for name in ("value", "low", "high")},
}
RUN = {
    "type": "object",
    "required": ["run", "window", "figures", "errors", "objective", "series", "warnings"],
    "properties": {"figures": {"type": "object", "additionalProperties": ESTIMATE}},
}
HEAD = {"schema": {"const": "attendant-loadtest-report"}, "version": {"const": 2}}
NOTHING = ReportOptions()


def run_report() -> LoadReport:
    options = ReportOptions(assertions=(parse_assertion("p95_ttft_ms<20"),))
    return report_run(figures_of(simulated(rate=20, seconds=10, objective=OBJECTIVE)), options)


def loads() -> LoadReport:
    runs = [simulated(rate=rate, seconds=10, objective=OBJECTIVE) for rate in (40, 10, 20)]
    return report_loads([figures_of(run) for run in runs])


REPORTS = {"run": run_report, "loads": loads}


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> LoadReport:
    return REPORTS[request.param]()


class Outline(HTMLParser):
    """Collects what a page holds, and whether its elements are closed in order."""

    EMPTY = ("meta", "path", "rect")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.EMPTY:
            assert self.open.pop() == tag


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    return found


def test_a_page_is_whole_and_needs_nothing_else(report: LoadReport) -> None:
    page = as_page(report.document)
    found = outline(page)
    assert found.open == []
    assert found.addresses == []
    assert "link" not in found.seen
    assert not re.search(r"url\(|@import|fetch\(|import\(", page)
    assert found.seen.count("svg") >= 3
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"\bnan\b|\binf\b", page.partition("<main>")[2], re.IGNORECASE)


def test_what_a_plot_shows_under_the_pointer_is_json(report: LoadReport) -> None:
    page = as_page(report.document)
    plots = re.findall(r'data-plot="([^"]*)"', page)
    for text in plots:
        plot = json.loads(text.replace("&quot;", '"').replace("&#x27;", "'").replace("&lt;", "<"))
        for curve in plot["curves"]:
            assert len(curve["at"]) == len(curve["x"]) == len(curve["y"])


def test_tables_of_markdown_have_even_rows(report: LoadReport) -> None:
    text = as_markdown(report.document)
    blocks = [b.splitlines() for b in text.split("\n\n") if b.startswith("|")]
    assert len(blocks) >= 2
    for lines in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_text_is_brief(report: LoadReport) -> None:
    text = as_text(report.document)
    assert "DEFINITIONS" not in text
    assert not any(line.endswith(" ") for line in text.splitlines())
    for section in report.document.sections:
        assert (section.title.upper() in text) == (section.is_brief and bool(section.blocks))


@pytest.mark.parametrize("kind", REPORTS)
def test_json_keeps_its_schema(kind: str) -> None:
    found = json.loads(REPORTS[kind]().json)
    inner = {
        "run": {**RUN, "required": [*RUN["required"], "assertions"]},
        "loads": {
            "required": ["unit", "runs", "capacity"],
            "properties": {"runs": {"items": RUN}},
        },
    }[kind]
    jsonschema.validate(found, {"properties": {**HEAD, "kind": {"const": kind}}})
    jsonschema.validate(found, inner)


def test_a_run_tells_what_was_kept() -> None:
    report = run_report()
    text = as_text(report.document)
    assert not report.is_kept
    assert re.search(r"p95_ttft_ms < 20 .* not kept", text)
    assert re.search(r"p95_ttft_ms <= 200 .* kept", text)
    assert "p99.9 needs 1000" in text
    assert "GOODPUT" in text


def test_loads_tell_the_capacity() -> None:
    found = json.loads(loads().json)
    assert found["capacity"] == {"carried": 20.0, "not_carried": 40.0}
    assert [run["load"] for run in found["runs"]] == [10.0, 20.0, 40.0]
    text = as_text(loads().document)
    assert "20 requests/s  (not 40 requests/s)" in text
    assert "40 requests/s was too much: p95_ttft_ms" in text


def test_a_load_that_fails_for_other_reasons_says_so() -> None:
    requests = [streamed(i * 0.1, 0.05, 0.01, 5) for i in range(90)]
    requests += [request_of(5, 5.1, outcome="HTTP 500", status=500)] * 9
    arrivals = {"kind": "poisson", "rate": 10.0}
    run = recording_of(requests, arrivals=arrivals, objective=OBJECTIVE)
    report = report_loads([figures_of(run)])
    assert not report.is_kept
    assert "10 requests/s was too much: requests failed: HTTP 500 9." in as_text(report.document)


def test_what_servers_and_users_write_is_no_markup() -> None:
    evil = "<script>alert(1)</script>|*x*"
    requests = [request_of(1, 2, outcome=evil), request_of(1, 2)]
    report = report_run(figures_of(recording_of(requests, url=evil)), NOTHING)
    page = as_page(report.document)
    assert page.count("<script>") == 1
    assert outline(page).open == []
    assert "\\<script\\>alert(1)\\</script\\>\\|\\*x\\*" in as_markdown(report.document)


def test_a_run_without_answers_has_a_report_too() -> None:
    requests = [request_of(1, 2, outcome="timeout", status=None)]
    report = report_run(figures_of(recording_of(requests), objective=OBJECTIVE), NOTHING)
    assert "timeout" in as_text(report.document)
    assert outline(as_page(report.document)).open == []
    json.loads(report.json)
    empty = report_run(figures_of(recording_of([])), NOTHING)
    assert outline(as_page(empty.document)).open == []
