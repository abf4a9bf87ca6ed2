"""Says how evenly users were served: Jain's index of what each got, and the worst user's latency.

Jain, Chiu and Hawe, A Quantitative Measure of Fairness, 1984: (sum x)^2 / (n sum x^2); 1 where all
users got the same, 1/n where one got everything.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtest.records import Recording, counted
from loadtest.statistics.estimates import Estimate, Samples, percentile
from loadtest.statistics.measures import MEASURES, samples_of
from loadtest.statistics.rates import answered_inside

WORST_PERCENT = 95.0
NO_USERS = Estimate(None, reason="fewer than two users")


@dataclass(frozen=True, slots=True)
class Fairness:
    """Holds the index, what it was taken of, and the highest p95 that a user had in seconds."""

    users: int
    shared: str  # "tokens", or "answers" where answers do not say how many tokens they have
    index: Estimate
    worst_user_end_to_end: Estimate


def fairness(recording: Recording) -> Fairness:
    users = _users(recording)
    if len(users) < 2:
        return Fairness(len(users), "answers", NO_USERS, NO_USERS)
    answers = answered_inside(recording)
    has_tokens = bool(answers) and all(r.output_tokens is not None for r in answers)
    got = dict.fromkeys(users, 0.0)
    for request in answers:
        if request.user is not None:
            got[request.user] += (request.output_tokens or 0) if has_tokens else 1
    index = jain(list(got.values()))
    shared = "tokens" if has_tokens else "answers"
    return Fairness(len(users), shared, index, _worst(recording))


def jain(amounts: Sequence[float]) -> Estimate:
    x = np.asarray(amounts, dtype=np.float64)
    if not x.any():
        return Estimate(None, reason="no user got an answer")
    return Estimate(float(x.sum() ** 2 / (len(x) * (x**2).sum())))


def _users(recording: Recording) -> set[int]:
    """Return every user that there was: one that never got an answer counts with nothing."""
    asked_for = recording.run.arrivals.get("users") or 0
    seen = {request.user for request in recording.requests if request.user is not None}
    return seen | set(range(asked_for))


def _worst(recording: Recording) -> Estimate:
    requests = defaultdict(list)
    for request in counted(recording):
        requests[request.user].append(request)
    found = []
    for own in requests.values():
        seconds = samples_of(own, MEASURES["e2e"]).values
        found.append(percentile(Samples(np.sort(seconds)), WORST_PERCENT))
    known = [estimate for estimate in found if estimate.value is not None]
    if not known:
        return Estimate(None, reason="no user has the 20 answers that a p95 needs")
    return max(known, key=lambda estimate: estimate.value or 0.0)
