"""Finds out how much load the generator itself can make, and whether a run came near that.

Latencies that are measured near the ceiling are the generator's own.
"""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from loadtest.generator.run import run_plan
from loadtest.mock.behaviour import Behaviour
from loadtest.mock.server import mock_server
from loadtest.plan import ArrivalPlan, Plan, Target, WorkPlan
from loadtest.records import Recording, counted
from loadtest.work.mix import DEFAULT

_MAX_CPU = 0.85
_MAX_LAG_MS = 5.0
_MAX_LATE_MS = 10.0
_USERS = 64
_WARM_UP_SECONDS = 1.0
_SECONDS = 4.0
_TOKENS_PER_ANSWER = 64


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Holds what one process makes of one processor: whole answers, or chunks of streams."""

    requests_per_second: float
    chunks_per_second: float


def measure_ceiling() -> Ceiling:
    """Ask the mock server, which answers at once, as much as one process can.

    Rates are by the processor time that the process had: what else goes on counts little.
    """
    with mock_server(Behaviour(num_tokens=_TOKENS_PER_ANSWER)) as url:
        whole, streamed = _flat_out(url, "translate"), _flat_out(url, "completions")
    chunks = sum(len(request.tokens) for request in counted(streamed))
    return Ceiling(
        requests_per_second=len(counted(whole)) / _cpu_seconds(whole),
        chunks_per_second=chunks / _cpu_seconds(streamed),
    )


def _flat_out(url: str, protocol: str) -> Recording:
    target = Target(protocol, "mock", {DEFAULT: 1.0})
    plan = Plan(
        url=url,
        arrivals=ArrivalPlan(users=_USERS),
        work=WorkPlan(targets=(target,)),
        warm_up_seconds=_WARM_UP_SECONDS,
        duration_seconds=_SECONDS,
    )
    with TemporaryDirectory() as folder:
        return run_plan(plan, Path(folder) / "run.jsonl")


def _cpu_seconds(recording: Recording) -> float:
    return recording.seconds * max(_cpu(recording))


def _cpu(recording: Recording) -> list[float]:
    """Return how busy each process was in the window, on average."""
    window = recording.window
    busy = [s.cpu for s in recording.generator if window.opened < s.time <= window.closed + 0.5]
    return np.mean(busy, axis=0).tolist() if busy else [0.0]


def warnings(recording: Recording) -> list[str]:
    """Say what shows that the generator could hardly keep up, if anything does."""
    found = []
    if (cpu := max(_cpu(recording))) > _MAX_CPU:
        found.append(f"a process of the generator was {cpu:.0%} busy; give it more --processes")
    lags = [sample.lag_ms for sample in recording.generator]
    if lags and (lag := float(np.median(lags))) > _MAX_LAG_MS:
        found.append(f"its event loop woke up {lag:.1f} ms late; times are as far off")
    late = [request.sent - request.intended for request in counted(recording)]
    if late and (worst := 1000 * float(np.percentile(late, 99))) > _MAX_LATE_MS:
        found.append(f"1 % of the requests were sent at least {worst:.0f} ms late")
    return found
