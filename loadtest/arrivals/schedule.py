"""Lists when the requests of an open loop are due, whichever way they arrive."""

from collections.abc import Iterator

from loadtest.arrivals.open import arrival_times
from loadtest.arrivals.replay import read_trace
from loadtest.plan import ArrivalPlan, Plan


def due_times(plan: Plan) -> Iterator[float]:
    """Yield them in order, in seconds since the run began, until the window is over or holds as
    many requests as it is to have.
    """
    in_window = 0
    for time in _times(plan):
        in_window += time >= plan.warm_up_seconds
        if time >= plan.end_seconds or (plan.requests and in_window > plan.requests):
            return
        yield time


def _times(plan: Plan) -> Iterator[float]:
    arrivals = plan.arrivals
    if arrivals.trace is not None:
        return (arrival.time for arrival in read_trace(arrivals.trace))
    return arrival_times(arrivals, plan.work.seed, plan.warm_up_seconds, plan.duration_seconds)


def trace_texts(plan: ArrivalPlan) -> list[str] | None:
    """Return the texts of a trace that has them, in its order; else None."""
    arrivals = read_trace(plan.trace) if plan.trace else []
    texts = [arrival.text for arrival in arrivals if arrival.text is not None]
    return texts or None
