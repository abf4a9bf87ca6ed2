"""The search for a capacity: which rates it tries, when it waits, what it keeps, how it ends."""

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from loadtest import capacity as searching
from loadtest.capacity import LOWEST_PART, Prober, find_capacity, run_search, search_plan
from loadtest.cli import loadtest
from loadtest.options import ReportOptions, SearchOptions
from loadtest.plan import LoadPlan
from loadtest.records import LoadTestError, Recording
from loadtest.statistics.figures import Figures
from loadtest.statistics.loads import capacity, load_value
from tests.loadtest.recordings import recording_of, simulated

URL = "http://127.0.0.1:1/"
CAPACITY = SearchOptions(find_capacity=True, precision=0.2, sweep=None)
OBJECTIVE = ReportOptions(objective={"p95_ttft_ms": 200.0})
Run = Callable[[LoadPlan, Path], Recording]


def options(*arguments: str) -> dict[str, Any]:
    """The command's options as it would have them."""
    context = loadtest.make_context("loadtest", [URL, *arguments])
    return context.params


class Server:
    """Makes a recording for each plan, and remembers the plans."""

    def __init__(self) -> None:
        self.plans: list[LoadPlan] = []

    def __call__(self, plan: LoadPlan, path: Path) -> Recording:
        self.plans.append(plan)
        arrivals: dict[str, Any] = {"kind": plan.arrivals.kind}
        if plan.arrivals.is_closed_loop:
            arrivals["users"] = plan.arrivals.users
        else:
            arrivals["rate"] = plan.arrivals.rate
        rate = plan.arrivals.rate or 2.0 * (plan.arrivals.users or 0)
        seconds = plan.duration_seconds
        found = simulated(rate, seconds, workers=8)
        objective = None if plan.objective is None else dict(plan.objective)
        return recording_of(found.requests, closed=seconds, arrivals=arrivals, objective=objective)


def search(
    run: Run, path: Path, what: SearchOptions, *arguments: str, report: ReportOptions = OBJECTIVE
) -> tuple[list[Figures], LoadTestError | None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "wait_until_idle", lambda url: True)
        plan = search_plan(URL, what, report, options(*arguments))
        return run_search(plan, what, Prober(plan, path, run=run))


def test_a_capacity_is_found_with_its_evidence(tmp_path: Path) -> None:
    server = Server()
    found, problem = search(server, tmp_path / "c.jsonl", CAPACITY, "--duration", "20")
    best = capacity(found)
    assert problem is None
    assert best.carried is not None
    assert best.not_carried is not None
    low, high = (load_value(f.recording.run) for f in (best.carried, best.not_carried))
    assert 10 < low < high <= 1.2 * low < 30
    assert len(found) == len(server.plans)
    assert {plan.arrivals.kind for plan in server.plans} == {"poisson"}
    assert server.plans[0].arrivals.rate == 1.0
    assert all(plan.objective == OBJECTIVE.objective for plan in server.plans)


def test_no_probe_asks_what_another_has_asked(tmp_path: Path) -> None:
    server = Server()
    found, _ = search(server, tmp_path / "c.jsonl", CAPACITY, "--duration", "20")
    used = 0
    for plan, figures in zip(server.plans, found, strict=True):
        assert plan.work.skipped_texts == used
        used += len(figures.recording.requests)


def test_windows_are_longer_where_few_requests_come(tmp_path: Path) -> None:
    """A p95 is judged by 100 requests: at 2 a second that is 50 s; at 1, no more than 4 windows."""
    server = Server()
    search(server, tmp_path / "c.jsonl", CAPACITY, "--duration", "20")
    seconds = {plan.arrivals.rate: plan.duration_seconds for plan in server.plans}
    assert (seconds[1.0], seconds[2.0], seconds[8.0]) == pytest.approx((80.0, 50.0, 20.0))


def test_a_sweep_runs_the_loads_it_is_given(tmp_path: Path) -> None:
    sweep = SearchOptions(find_capacity=False, precision=0.05, sweep=(1.0, 2.0, 4.0))
    server = Server()
    found, _ = search(
        server, tmp_path / "s.jsonl", sweep, "--duration", "5", report=ReportOptions()
    )
    assert [plan.arrivals.users for plan in server.plans] == [1, 2, 4]
    assert [load_value(figures.recording.run) for figures in found] == [1, 2, 4]
    server = Server()
    search(server, tmp_path / "s.jsonl", sweep, "--arrivals", "constant")
    assert [plan.arrivals.rate for plan in server.plans] == [1.0, 2.0, 4.0]


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    server = Server()

    def dying(plan: LoadPlan, path: Path) -> Recording:
        if len(server.plans) == 2:
            raise LoadTestError("gone")
        return server(plan, path)

    found, problem = search(dying, tmp_path / "c.jsonl", CAPACITY)
    assert len(found) == 2
    assert str(problem) == "gone"
    with pytest.raises(LoadTestError):
        search(dying, tmp_path / "c.jsonl", CAPACITY)


def test_a_run_that_was_interrupted_ends_the_search(tmp_path: Path) -> None:
    def interrupted(plan: LoadPlan, path: Path) -> Recording:
        return recording_of([], closed=plan.duration_seconds / 2)

    with pytest.raises(LoadTestError, match="interrupted at 1"):
        search(interrupted, tmp_path / "c.jsonl", CAPACITY)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--find-capacity",), "needs --objective"),
        (("--find-capacity", "--objective", "p95_ttft_ms=9", "--users", "3"), "does nothing"),
        (("--find-capacity", "--sweep", "1,2"), "two searches"),
        (("--find-capacity", "--objective", "p95_e2e_ms=9", "--arrivals", "closed"), "needs open"),
        (("--sweep", "1,2", "--rate", "4"), "leave --rate and --users out"),
        (("--sweep", "0.5,1"), "users are whole numbers"),
        (("--sweep", "1,two"), "not a list of loads"),
        (("--sweep", "1,2", "--assert", "errors<1"), "a search has --objective"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(loadtest, [URL, *arguments])
    assert result.exit_code == 2
    assert says in result.stderr


def asked(capacity: float, first: float, precision: float) -> list[float]:
    rates: list[float] = []

    def carries(rate: float) -> bool:
        rates.append(rate)
        return rate <= capacity

    find_capacity(carries, first, precision)
    return rates


@given(st.floats(0.05, 5000), st.floats(0.5, 50), st.sampled_from([0.02, 0.05, 0.2]))
def test_the_capacity_is_bracketed(capacity: float, first: float, precision: float) -> None:
    rates = asked(capacity, first, precision)
    assert len(rates) <= 16 + 8
    assert len(set(rates)) == len(rates)
    carried = [rate for rate in rates if rate <= capacity]
    if not carried:
        assert capacity < first * LOWEST_PART * 2
        return
    above = min(rate for rate in rates if rate > capacity)
    assert above - max(carried) <= max(precision, 0.01) * max(carried) * 1.001


def test_the_order_is_doubling_and_then_halving_gaps() -> None:
    assert asked(11.0, 1.0, 0.1) == [1.0, 2.0, 4.0, 8.0, 16.0, 12.0, 10.0, 11.0]
    assert asked(0.3, 1.0, 0.2) == [1.0, 0.5, 0.25, 0.375, 0.312, 0.281]


def test_a_server_that_carries_everything_ends_the_search() -> None:
    rates = asked(float("inf"), 1.0, 0.05)
    assert rates[-1] == 2.0**16


@pytest.mark.parametrize("first", [1.0, 64.0])
def test_a_server_that_carries_nothing_ends_the_search(first: float) -> None:
    assert len(asked(0.0, first, 0.05)) == 7


@contextmanager
def serving(pages: list[str]) -> Iterator[str]:
    """A server whose metrics are one page after the other, and the last one for ever."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = (pages.pop(0) if len(pages) > 1 else pages[0]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def gauges(waiting: int, rows: int) -> str:
    return "".join(
        f'# TYPE {name} gauge\n{name}{{model_name="a"}} {value}\n'
        for name, value in (
            ("vllm:num_requests_waiting", waiting),
            ("vllm:num_requests_running", rows),
        )
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(searching, "PAUSE_WITHOUT_METRICS_SECONDS", 0.01)
    monkeypatch.setattr(searching, "MOST_WAIT_SECONDS", 0.2)


def test_it_waits_until_nothing_is_left() -> None:
    pages = [gauges(3, 8), gauges(0, 2), gauges(0, 0)]
    with serving(pages) as url:
        assert searching.wait_until_idle(url)
    assert pages == [gauges(0, 0)]


def test_a_server_that_never_rests_is_given_up() -> None:
    with serving([gauges(0, 1)]) as url:
        assert not searching.wait_until_idle(url)


def test_a_server_without_metrics_gets_a_pause() -> None:
    with serving(["<html>"]) as url:
        assert searching.wait_until_idle(url)
    assert searching.wait_until_idle("http://127.0.0.1:1/")
