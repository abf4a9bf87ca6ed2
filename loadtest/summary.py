"""Sums a recording up in a few lines of text."""

from collections import Counter

import numpy as np

from loadtest.records import OK, Recording, counted


def as_text(recording: Recording) -> str:
    requests = counted(recording)
    good = [r for r in requests if r.outcome == OK]
    rate = len(good) / recording.seconds if recording.seconds else 0.0
    errors = Counter(r.outcome for r in requests if r.outcome != OK)
    lines = [
        f"{recording.run.url}, {recording.run.arrivals}, {recording.seconds:.1f} s",
        f"answers {len(good)}, {rate:.1f}/s",
        f"errors {dict(errors) or 'none'}",
    ]
    if good:
        latency = np.percentile([1000 * (r.end - r.intended) for r in good], [50, 95, 99])
        lines.append("latency ms p50 {:.1f} p95 {:.1f} p99 {:.1f}".format(*latency))
    return "\n".join(lines)
