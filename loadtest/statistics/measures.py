"""Defines what is measured of each request, and collects it from those that count.

Latency counts from the moment at which the arrival process wanted a request sent, so that a server
that stalls cannot slow down the clock it is measured by. Definitions are those of vLLM's benchmark
(`vllm bench serve`), except that it counts from the sending.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from loadtest.records import CANCELLED, OK, Request
from loadtest.statistics.estimates import Samples


@dataclass(frozen=True, slots=True)
class Measure:
    """Names a latency. of: its values in one request, in seconds; none where it has none."""

    title: str
    definition: str
    of: Callable[[Request], list[float]]
    is_pooled: bool = False  # a request may bring several values, which belong together


def first_token(request: Request) -> list[float]:
    return [request.tokens[0] - request.intended] if request.tokens else []


def gaps(request: Request) -> list[float]:
    return np.diff(np.asarray(request.tokens, float)).tolist()


def per_output_token(request: Request) -> list[float]:
    count = request.output_tokens or len(request.tokens)
    if len(request.tokens) < 2 or count < 2:
        return []
    return [(request.tokens[-1] - request.tokens[0]) / (count - 1)]


def end_to_end(request: Request) -> list[float]:
    return [request.end - request.intended]


def queueing(request: Request) -> list[float]:
    return [request.sent - request.intended]


MEASURES = {
    "ttft": Measure(
        "time to first token",
        "from the intended sending to the first event with text; streamed answers only",
        first_token,
    ),
    "itl": Measure(
        "inter-token latency",
        "between neighbouring events with text, all gaps of all answers pooled",
        gaps,
        is_pooled=True,
    ),
    "tpot": Measure(
        "time per output token",
        "for each answer (last event - first event) / (tokens - 1)",
        per_output_token,
    ),
    "e2e": Measure(
        "end-to-end latency", "from the intended sending to the last byte of the answer", end_to_end
    ),
    "queue": Measure("queueing in the client", "from the intended to the actual sending", queueing),
}


def samples_of(requests: Iterable[Request], measure: Measure) -> Samples:
    """Collect a measure over answers; those that failed or were cancelled have no latency."""
    per_request = [measure.of(request) for request in requests if is_answer(request)]
    values = np.array([value for values in per_request for value in values], dtype=np.float64)
    if not measure.is_pooled:
        return Samples(values)
    lengths = [len(values) for values in per_request]
    return Samples(values, np.repeat(np.arange(len(lengths)), lengths))


def is_answer(request: Request) -> bool:
    return request.outcome == OK


def is_meant_well(request: Request) -> bool:
    """Tell requests that were to be answered from those sent to be refused or to be cut off."""
    return not request.is_expected_error and request.outcome != CANCELLED


def is_failure(request: Request) -> bool:
    return is_meant_well(request) and request.outcome != OK
