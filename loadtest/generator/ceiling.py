"""Finds out how much load the generator itself can make: near that it measures itself."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from loadtest.errors import LoadTestError
from loadtest.generator.items import DEFAULT
from loadtest.generator.mock_server import Behaviour, mock_server
from loadtest.generator.run import run_plan
from loadtest.plan import ArrivalPlan, Plan, Target, WorkPlan
from loadtest.records import Recording, counted

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
    """Return how long the process had a processor in the window."""
    window = recording.window
    busy = [s.cpu[0] for s in recording.generator if window.opened < s.time <= window.closed]
    if not busy:
        raise LoadTestError("the machine is too busy to measure the load generator")
    return recording.seconds * sum(busy) / len(busy)
