"""Figures against a server whose latencies are known, over real HTTP and from real processes.

Latencies are long and rates low, so that a busy machine does not matter. How raw times are right is
tested with the generator; here it is the figures that are.
"""

import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from loadtest.generator.run import run_plan
from loadtest.plan import ArrivalPlan, LoadPlan, WorkPlan
from loadtest.statistics.figures import Figures, figures_of
from tests.loadtest.mock_server import Behaviour, mock_server

pytestmark = pytest.mark.servers

EXACT = 0.02
Log = list[dict[str, Any]]


def measured(
    behaviour: Behaviour, path: Path, arrivals: ArrivalPlan, work: WorkPlan, seconds: float
) -> tuple[Figures, Log]:
    """The figures of a run, and what the server says that it did."""
    with mock_server(behaviour) as url:
        plan = LoadPlan(
            url=url,
            arrivals=arrivals,
            work=work,
            warm_up_seconds=1.0,
            duration_seconds=seconds,
        )
        recording = run_plan(plan, path)
        with urlopen(f"{url}log") as answer:
            return figures_of(recording, limits={"ttft": 1.0}), json.load(answer)


def test_statistics_are_right(tmp_path: Path) -> None:
    behaviour = Behaviour(
        first_token_seconds=1.0, spread=0.3, token_seconds=0.3, num_tokens=4, seed=5
    )
    arrivals = ArrivalPlan(kind="constant", rate=25.0)
    work = WorkPlan(protocol="completions", model="m")
    figures, log = measured(behaviour, tmp_path / "run.jsonl", arrivals, work, seconds=6.0)
    drawn = [entry["drawn_seconds"] for entry in log]
    named = {name: found.value for name, found in figures.named.items()}
    assert named["answers"] == 150
    for percent in (50, 90):
        first = 1000 * np.percentile(drawn, percent)
        assert named[f"p{percent}_ttft_ms"] == pytest.approx(first, rel=EXACT)
        assert named[f"p{percent}_e2e_ms"] == pytest.approx(first + 900, rel=EXACT)
    assert named["p50_itl_ms"] == pytest.approx(300, rel=EXACT)
    assert named["p50_tpot_ms"] == pytest.approx(300, rel=EXACT)
    assert named["offered_per_second"] == pytest.approx(25, rel=EXACT)
    assert named["goodput_share"] == pytest.approx(np.mean(np.less(drawn, 1.0)), abs=EXACT)


def test_a_stall_shows_in_an_open_loop_and_hides_in_a_closed_one(tmp_path: Path) -> None:
    """For 2 s of 7 the server stands still. All that came evenly meanwhile had to wait; of four
    users, who waited with it, each waited once.
    """
    behaviour = Behaviour(first_token_seconds=0.1, num_tokens=1, stall_at=150)
    work = WorkPlan()
    evenly, users = ArrivalPlan(kind="constant", rate=50.0), ArrivalPlan(users=4)
    figures, log = measured(behaviour, tmp_path / "open.jsonl", evenly, work, seconds=7.0)
    closed, _ = measured(behaviour, tmp_path / "closed.jsonl", users, work, seconds=7.0)
    waits = waits_by_the_server(figures, log)
    for percent in (50, 90, 99):
        expected = 1000 * np.percentile(waits, percent)
        assert figures.named[f"p{percent}_e2e_ms"].value == pytest.approx(expected, rel=EXACT)
    assert np.percentile(waits, 90) > 1.4
    assert figures.named["p99_e2e_ms"].value > 2000  # type: ignore[operator]
    assert closed.named["max_e2e_ms"].value > 2000  # type: ignore[operator]
    assert closed.named["p95_e2e_ms"].value < 200  # type: ignore[operator]


def waits_by_the_server(figures: Figures, log: Log) -> list[float]:
    """How long requests took from when they were due until the server had answered.

    The clocks are one, but the recording's begins with the run: at the median answers arrive when
    they are sent.
    """
    ends = {entry["id"]: entry["end"] for entry in log}
    pairs = [(r, ends[f"loadtest-{r.id}"]) for r in figures.recording.requests_in_window()]
    start = float(np.median([end - request.end for request, end in pairs]))
    return [end - start - request.intended for request, end in pairs]
