"""Tests that what is written down of requests is what the server did: held against the mock
server's own log.

Latencies are long and rates low, and medians are compared: others use the machine too.
"""

import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from loadtest.generator.protocols import PROTOCOLS
from loadtest.generator.run import run_plan
from loadtest.plan import ArrivalPlan, LoadPlan, WorkPlan
from loadtest.records import Recording, Request
from tests.loadtest.mock_server import Behaviour, mock_server

LESS_THAN = 0.02  # how far off medians may be


@dataclass(frozen=True)
class Observed:
    """Pairs every request's record with the entry of the server's log."""

    recording: Recording
    pairs: list[tuple[Request, dict[str, Any]]]

    def median(self, of: Callable[[Request, dict[str, Any]], float]) -> float:
        return statistics.median(of(request, entry) for request, entry in self.pairs)


def observe(
    behaviour: Behaviour,
    path: Path,
    protocol: str,
    rate: float = 40.0,
    seconds: float = 2.0,
    kind: str = "constant",
    **work: Any,
) -> Observed:
    with mock_server(behaviour) as url:
        plan = LoadPlan(
            url=url,
            arrivals=ArrivalPlan(kind=kind, rate=rate),
            work=WorkPlan(protocol=protocol, model="mock", **work),
            warm_up_seconds=0.2,
            duration_seconds=seconds,
        )
        recording = run_plan(plan, path)
        with urlopen(url + "log") as answer:
            log = {entry["id"]: entry for entry in json.load(answer)}
    requests = [r for r in recording.requests if f"loadtest-{r.id}" in log]
    return Observed(recording, [(r, log[f"loadtest-{r.id}"]) for r in requests])


def near(value: float) -> Any:
    return pytest.approx(value, rel=LESS_THAN)


def test_streams_are_timed_as_the_server_sent_them(tmp_path: Path) -> None:
    behaviour = Behaviour(first_token_seconds=0.8, spread=0.2, token_seconds=0.2, num_tokens=4)
    found = observe(behaviour, tmp_path / "run.jsonl", "completions", kind="poisson")
    assert len(found.pairs) == len(found.recording.requests) > 60
    assert all(len(r.tokens) == r.output_tokens == 4 for r, _ in found.pairs)

    def first_token(request: Request, entry: dict[str, Any]) -> float:
        return (request.tokens[0] - request.sent) / (entry["first"] - entry["received"])

    assert found.median(first_token) == near(1.0)
    assert found.median(lambda r, e: (r.tokens[-1] - r.tokens[0]) / 3) == near(0.2)
    assert found.median(lambda r, e: (r.end - r.sent) / (e["end"] - e["received"])) == near(1.0)
    assert found.median(lambda r, e: r.sent - r.intended) < 0.02


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whole_answers_are_timed_by_every_protocol(tmp_path: Path, protocol: str) -> None:
    behaviour = Behaviour(first_token_seconds=0.7, token_seconds=0.01, num_tokens=11)
    path = tmp_path / "run.jsonl"
    found = observe(behaviour, path, protocol, seconds=0.5, is_streamed=False)
    assert len(found.pairs) > 5
    assert found.median(lambda r, e: (r.end - r.sent) / (e["end"] - e["received"])) == near(1.0)
    request = found.recording.requests[0]
    translates = PROTOCOLS[protocol].translates
    assert (request.tokens, request.status, request.sentences) == ((), 200, translates)
    assert request.output_tokens == (None if translates else 11)


def test_latency_of_an_open_loop_shows_a_server_that_stands_still(tmp_path: Path) -> None:
    """Requests that are due while it does are sent all the same and wait until it goes on."""
    behaviour = Behaviour(first_token_seconds=0.1, num_tokens=1, stall_at=20, stall_seconds=2.0)
    found = observe(behaviour, tmp_path / "run.jsonl", "translate", rate=30.0, seconds=3.5)
    epoch = min(e["received"] - r.sent for r, e in found.pairs)
    received = sorted(e["received"] - epoch for _, e in found.pairs)
    stood_still, began = max((after - before, before) for before, after in pairwise(received))
    assert stood_still == near(2.0)
    waited = [
        (request, entry)
        for request, entry in found.pairs
        if began + 0.1 < request.intended < began + 1.9
    ]
    assert len(waited) > 50
    latencies = [request.end - request.intended for request, _ in waited]
    truths = [entry["end"] - epoch - request.intended for request, entry in waited]
    # Sixty answers come at once; a client that may share a core reads them one after the other.
    assert abs(statistics.median(latencies) - statistics.median(truths)) < 0.2
    assert statistics.median(latencies) > 1.0
    assert found.median(lambda r, e: r.sent - r.intended) < 0.02


def test_errors_are_named_as_they_befell(tmp_path: Path) -> None:
    behaviour = Behaviour(
        first_token_seconds=0.01,
        num_tokens=3,
        good_requests=1,
        refuse=0.15,
        fail=0.15,
        nonsense=0.15,
        late_error=0.15,
        cut=0.15,
    )
    outcomes = {
        "good": ("ok", 200),
        "refuse": ("refused", 429),
        "fail": ("HTTP 500", 500),
        "nonsense": ("cut stream", 200),
        "late_error": ("error in stream", 200),
        "cut": ("cut stream", 200),
    }
    found = observe(behaviour, tmp_path / "run.jsonl", "completions", rate=60.0)
    assert {e["fault"] for _, e in found.pairs} == set(outcomes)
    for request, entry in found.pairs:
        assert (request.outcome, request.status) == outcomes[entry["fault"]]
        assert bool(request.detail) == (request.outcome != "ok")
    refused = next(r for r, _ in found.pairs if r.outcome == "refused")
    assert refused.detail == '{"error": "too many requests"}'


def test_the_servers_metrics_stand_at_both_ends_of_the_window(tmp_path: Path) -> None:
    behaviour = Behaviour(first_token_seconds=0.02, num_tokens=7)
    recording = observe(behaviour, tmp_path / "run.jsonl", "translate").recording
    first, *_, last = recording.server
    assert first.time == pytest.approx(recording.window.opened, abs=0.2)
    assert last.time == pytest.approx(recording.window.closed, abs=0.2)
    grown = last.generated_tokens - first.generated_tokens
    ended = [r for r in recording.requests if first.time < r.end <= last.time]
    assert grown == pytest.approx(7 * len(ended), abs=3 * 7)


def test_the_generator_watches_itself(tmp_path: Path) -> None:
    found = observe(Behaviour(num_tokens=1), tmp_path / "run.jsonl", "translate").recording
    assert found.generator
    assert all(0 < sample.cpu < 1.5 and sample.lag_ms >= 0 for sample in found.generator)
