"""Figures come from the raw timestamps inside the window, and from those only."""

import json
from pathlib import Path

import numpy as np
import pytest

from loadtest.summary import FROM_SERVER, FROM_USAGE, distribution, summarise
from loadtest.timeline import OK, Exchange, Mark, Timeline

OPENED, CLOSED = Mark(1.0), Mark(3.0)


def timeline_of(*exchanges: Exchange, opened: Mark = OPENED, closed: Mark = CLOSED) -> Timeline:
    return Timeline({"url": "http://127.0.0.1:1/"}, list(exchanges), opened, closed)


def test_percentiles_are_numpys_linear_ones() -> None:
    seconds = np.random.default_rng(7).lognormal(-3, 1, 317).tolist()
    found = distribution(seconds)
    assert found is not None
    expected = np.percentile(seconds, [50, 90, 95, 99], method="linear")
    assert [found.p50, found.p90, found.p95, found.p99] == pytest.approx(expected.tolist())
    assert found.mean == pytest.approx(sum(seconds) / 317)
    assert found.max == max(seconds)


def test_one_measurement_is_every_percentile() -> None:
    assert distribution([0.25]) == distribution([0.25, 0.25, 0.25])
    assert distribution([]) is None


def test_only_what_ends_inside_the_window_counts() -> None:
    summary = summarise(
        timeline_of(
            Exchange(0, 0.0, 1.0, OK, sentences=1),  # warm-up, to its last instant
            Exchange(0, 0.9, 1.1, OK, sentences=1),  # began in the warm-up
            Exchange(0, 1.1, 3.0, OK, sentences=1),
            Exchange(0, 3.0, 3.1, OK, sentences=1),  # drained
            Exchange(1, 0.0, 2.0, "HTTP 429"),
            Exchange(1, 2.0, 2.1, "HTTP 429"),
            Exchange(1, 2.2, 2.3, "timeout"),
        )
    )
    assert summary.answers == 2
    assert summary.sentences_per_second == 1.0
    assert summary.errors == {"HTTP 429": 2, "timeout": 1}
    assert summary.latency_seconds is not None
    assert summary.latency_seconds.max == pytest.approx(1.9)
    assert summary.time_to_first_token_seconds is None


def test_usage_counts_tokens_before_the_server_does() -> None:
    answers = [
        Exchange(0, 1.0, 1.5, OK, first_token=1.1, tokens=30),
        Exchange(0, 1.5, 2.0, OK, first_token=1.8, tokens=10),
    ]
    summary = summarise(timeline_of(*answers, opened=Mark(1.0, 5.0), closed=Mark(3.0, 99.0)))
    assert (summary.tokens, summary.tokens_per_second) == (40, 20.0)
    assert summary.tokens_counted_by == FROM_USAGE
    assert summary.time_to_first_token_seconds is not None
    assert summary.time_to_first_token_seconds.mean == pytest.approx(0.2)


def test_the_servers_counter_counts_where_answers_do_not() -> None:
    answer = Exchange(0, 1.0, 1.5, OK, sentences=1)
    summary = summarise(timeline_of(answer, opened=Mark(1.0, 5.0), closed=Mark(3.0, 99.0)))
    assert (summary.tokens, summary.tokens_per_second) == (94, 47.0)
    assert summary.tokens_counted_by == FROM_SERVER
    assert summarise(timeline_of(answer)).tokens_per_second is None


def test_a_timeline_file_holds_everything(tmp_path: Path) -> None:
    timeline = timeline_of(Exchange(3, 1.0, 1.5, OK, 1.25, 0, 12), opened=Mark(0.5, 7.0))
    timeline.write(tmp_path / "run.jsonl")
    records = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert [record.pop("record") for record in records] == ["run", "opened", "exchange", "closed"]
    assert records[0] == timeline.run
    assert Mark(**records[1]) == timeline.opened
    assert Exchange(**records[2]) == timeline.exchanges[0]
    assert Mark(**records[3]) == timeline.closed
