"""Counts the requests that were served well: answered, and within every limit on a request.

Goodput is such requests per second, as in DistServe (Zhong et al., OSDI 2024), `vllm bench serve`
and AIPerf. Requests that failed are not good; those meant to be refused or cut off do not count. A
limit on `itl` is kept by a request none of whose gaps is longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.records import Recording, Request, counted
from loadtest.statistics.estimates import Estimate, proportion
from loadtest.statistics.measures import MEASURES, is_answer, is_meant_well

Limits = Mapping[str, float]  # measure -> seconds


@dataclass(frozen=True, slots=True)
class Goodput:
    """Holds the limits in seconds, good requests per second, and their share of all."""

    limits: Limits
    per_second: Estimate
    share: Estimate
    broken: dict[str, int]  # measure -> answers that broke its limit


def goodput(recording: Recording, limits: Limits) -> Goodput:
    meant = [request for request in counted(recording) if is_meant_well(request)]
    good = sum(is_answer(r) and all(keeps(r, *limit) for limit in limits.items()) for r in meant)
    share = proportion(good, len(meant))
    broken = {
        measure: sum(is_answer(r) and not keeps(r, measure, most) for r in meant)
        for measure, most in limits.items()
    }
    if recording.seconds <= 0 or not meant:
        return Goodput(limits, Estimate(None, reason="no requests"), share, broken)
    return Goodput(limits, share.scaled(len(meant) / recording.seconds), share, broken)


def keeps(request: Request, measure: str, most: float) -> bool:
    """Tell whether a request keeps a limit. Where it has no such latency that is so if it was
    streamed, as a single text has no gaps, and not known, so not good, if it was not.
    """
    values = MEASURES[measure].of(request)
    return max(values) <= most if values else bool(request.tokens)
