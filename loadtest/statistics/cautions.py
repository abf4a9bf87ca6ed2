"""Looks for what makes a run's figures doubtful, and says so in sentences."""

from collections.abc import Iterable, Iterator

import numpy as np

from loadtest.records import Recording, Request, counted
from loadtest.statistics.estimates import Floats, order_statistics
from loadtest.statistics.measures import MEASURES, is_answer, samples_of
from loadtest.statistics.rates import ended_inside, offered_inside

MOST_CPU = 0.85
MOST_LAG_MS = 5.0
MOST_LATENESS_SECONDS = 0.01
NEAR_CEILING = 0.7
DRIFT = 1.5
BACKLOG = 0.05  # of what was due, by which the server fell behind
FEWEST_FOR_DRIFT = 60


def cautions(recording: Recording) -> list[str]:
    return [
        *_incomplete(recording),
        *_texts_again(recording),
        *_busy_generator(recording),
        *_late_generator(recording),
        *_near_ceiling(recording),
        *_drift(recording),
        *_tokens_in_chunks(recording),
    ]


def _incomplete(recording: Recording) -> Iterator[str]:
    if not recording.is_complete:
        yield "The run was cut off; the figures are of what was recorded until then."


def _texts_again(recording: Recording) -> Iterator[str]:
    """Tell where a run asked more than there are texts, which caches may have flattered."""
    work = recording.run.work
    num_texts = work.get("num_texts")
    used = work.get("skipped_texts", 0) + len(recording.requests)
    if not num_texts or used <= num_texts:
        return
    asked = f"There are {num_texts} texts, and {used} were asked for"
    if work.get("repeats"):
        yield f"{asked}: they came again (--repeat), and the server's caches may have answered."
    else:
        yield (
            f'{asked}: from the second time on each sentence began with another year ("In 1001, '
            '..."), so that no cache knew it.'
        )


def _busy_generator(recording: Recording) -> Iterator[str]:
    inside = [s for s in recording.generator if recording.window.opened < s.time]
    cpu = max((max(sample.cpu, default=0.0) for sample in inside), default=0.0)
    lag = float(np.median([sample.lag_ms for sample in inside])) if inside else 0.0
    if cpu > MOST_CPU:
        yield (
            f"A process of the load generator used {cpu:.0%} of its core: the client may be what "
            "was measured. More --processes spread the load."
        )
    if lag > MOST_LAG_MS:
        yield (
            f"The load generator's event loop was {lag:.1f} ms late (median), which latencies hold."
        )


def _late_generator(recording: Recording) -> Iterator[str]:
    late = [request.sent - request.intended for request in counted(recording)]
    most = float(np.percentile(late, 99)) if late else 0.0
    if most > MOST_LATENESS_SECONDS:
        yield (
            f"1 % of the requests were sent {most * 1000:.0f} ms or more after they were due. "
            "Latencies count from when they were due."
        )


def _near_ceiling(recording: Recording) -> Iterator[str]:
    ceiling = recording.run.generator.get("ceiling_requests_per_second")
    if not ceiling or recording.seconds <= 0:
        return
    rate = len(offered_inside(recording)) / recording.seconds
    if rate > NEAR_CEILING * ceiling:
        yield (
            f"{rate:.0f} requests/s are {rate / ceiling:.0%} of what the load generator can send "
            f"({ceiling:.0f}/s): the client may be what was measured."
        )


def is_drifting(recording: Recording) -> bool:
    """Tell whether latency rose from the first to the last third of the window, beyond chance; and
    in an open loop a queue grew with it, for there latency also rises and falls by luck.
    """
    if not recording.is_closed_loop and not _is_falling_behind(recording):
        return False
    first, last = _thirds(recording)
    if len(last) < FEWEST_FOR_DRIFT // 3:
        return False
    low, _ = order_statistics(len(last), 0.5)
    return bool(last[low - 1] > DRIFT * np.median(first))


def _drift(recording: Recording) -> Iterator[str]:
    if is_drifting(recording):
        first, last = (float(np.median(third)) * 1000 for third in _thirds(recording))
        yield (
            f"Latency rose within the window, from a median of {first:.0f} ms in its first third "
            f"to {last:.0f} ms in its last: a longer run would show other latencies."
        )


def _is_falling_behind(recording: Recording) -> bool:
    due, over = len(offered_inside(recording)), len(ended_inside(recording))
    return due - over > BACKLOG * due


def _thirds(recording: Recording) -> tuple[Floats, Floats]:
    """Return the end-to-end latencies of the answers that were due first and last, in order."""
    answers = sorted(filter(is_answer, counted(recording)), key=lambda r: r.intended)
    third = len(answers) // 3
    first, last = answers[:third], answers[len(answers) - third :]
    return _ordered_latencies(first), _ordered_latencies(last)


def _ordered_latencies(answers: Iterable[Request]) -> Floats:
    return np.sort(samples_of(answers, MEASURES["e2e"]).values)


def _tokens_in_chunks(recording: Recording) -> Iterator[str]:
    streamed = [
        request
        for request in counted(recording)
        if is_answer(request) and request.tokens and request.output_tokens
    ]
    chunks = sum(len(request.tokens) for request in streamed)
    tokens = sum(request.output_tokens or 0 for request in streamed)
    if chunks and tokens > 1.1 * chunks:
        yield (
            f"An event of a stream carried {tokens / chunks:.2f} tokens on average: gaps between "
            "events (ITL) are longer than those between tokens (TPOT)."
        )
