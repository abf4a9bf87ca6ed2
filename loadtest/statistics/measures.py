"""The latencies of a request.

Latency counts from when the arrival process wanted a request sent, so that a server that stalls
shows it. The definitions are those of vLLM's benchmark (`vllm bench serve`), except that vLLM
counts from when the request was sent.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from loadtest.records import CANCELLED, OK, Request
from loadtest.statistics.estimates import Samples


@dataclass(frozen=True, slots=True)
class Measure:
    """A latency. of: returns its values in one request, in seconds; may be none.

    is_pooled: a request may have several values, which are not independent.
    """

    title: str
    definition: str
    of: Callable[[Request], list[float]]
    is_pooled: bool = False


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
    """Return the values of all answers; failed and cancelled requests have no latency."""
    per_request = [measure.of(request) for request in requests if is_answer(request)]
    values = np.array([value for values in per_request for value in values], dtype=np.float64)
    if not measure.is_pooled:
        return Samples(values)
    lengths = [len(values) for values in per_request]
    return Samples(values, np.repeat(np.arange(len(lengths)), lengths))


def is_answer(request: Request) -> bool:
    return request.outcome == OK


def is_failure(request: Request) -> bool:
    return request.outcome not in (OK, CANCELLED)
