"""Made recordings, whose figures are known."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.records import (
    GeneratorSample,
    MeasuringWindow,
    Recording,
    RecordWriter,
    Request,
    RunRecord,
    ServerSample,
)


def run_of(**changes: Any) -> RunRecord:
    fields: dict[str, Any] = {
        "started_at": "2026-01-01T00:00:00Z",
        "url": "http://127.0.0.1:1/",
        "arrivals": {"kind": "closed", "users": 2},
        "work": {},
        "settings": {},
        "objective": None,
    }
    return RunRecord(**{**fields, **changes})


def request_of(intended: float, end: float, **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "id": 0,
        "intended": intended,
        "sent": intended,
        "tokens": (),
        "end": end,
        "outcome": "ok",
        "status": 200,
        "detail": "",
        "sentences": 1,
        "output_tokens": None,
    }
    return Request(**{**fields, **changes})


def streamed(intended: float, first: float, gap: float, count: int, **changes: Any) -> Request:
    """A request whose answer's events come evenly after the first."""
    tokens = tuple(intended + first + gap * i for i in range(count))
    return request_of(intended, tokens[-1], **{"tokens": tokens, "output_tokens": count, **changes})


def recording_of(
    requests: Iterable[Request],
    opened: float = 0.0,
    closed: float = 10.0,
    server: Iterable[ServerSample] = (),
    generator: Iterable[GeneratorSample] = (),
    is_complete: bool = True,
    **run: Any,
) -> Recording:
    window = MeasuringWindow(opened=opened, closed=closed)
    return Recording(
        run_of(**run), [*requests], [*server], [*generator], window, is_complete=is_complete
    )


OPEN = {"kind": "poisson", "rate": 50.0}


def simulated(
    rate: float,
    seconds: float,
    seed: int = 0,
    workers: int = 16,
    stall: tuple[float, float] | None = None,
    **run: Any,
) -> Recording:
    """An open-loop run against a made-up server of so many workers, which first come first served.

    Answers are streams of about 30 tokens. stall: from when on, and for how long, nothing moves.
    """
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, round(rate * seconds)))
    free = [0.0] * workers
    requests = []
    for i, at in enumerate(due):
        tokens = int(rng.integers(10, 50))
        worker = int(np.argmin(free))
        begin = _after_stall(max(at, free[worker]), stall)
        gaps = rng.gamma(8, 0.012 / 8, tokens)
        times = tuple(begin + rng.lognormal(-3, 0.4) + np.cumsum(gaps))
        free[worker] = times[-1]
        sent = float(at + rng.exponential(0.0004))
        requests.append(
            request_of(float(at), times[-1], id=i, sent=sent, tokens=times, output_tokens=tokens)
        )
    run = {"arrivals": {"kind": "poisson", "rate": rate}, **run}
    return recording_of(requests, opened=min(3.0, seconds / 5), closed=seconds, **run)


def _after_stall(time: float, stall: tuple[float, float] | None) -> float:
    if stall is None or not stall[0] <= time < sum(stall):
        return time
    return sum(stall)


def written(recording: Recording, path: Path) -> Path:
    """Write a recording as a run does."""
    with RecordWriter(path) as writer:
        writer.write(recording.run, *recording.requests, *recording.server, *recording.generator)
        if recording.is_complete:
            writer.write(recording.window)
    return path
