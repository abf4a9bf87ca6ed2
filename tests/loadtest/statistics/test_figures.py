"""Figures of made recordings, which are known exactly."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.records import GeneratorSample, ServerSample
from loadtest.statistics.figures import BY_ANSWERS, BY_SERVER, errors, figures_of
from tests.loadtest.recordings import OPEN, recording_of, request_of, simulated, streamed


def test_latencies_of_streams() -> None:
    requests = [streamed(i * 0.2, first=0.1, gap=0.02, count=5) for i in range(40)]
    named = figures_of(recording_of(requests)).named
    for name in ("ttft_p50_ms", "ttft_p95_ms", "ttft_mean_ms", "ttft_max_ms"):
        assert named[name].value == pytest.approx(100)
    for name in ("itl_p99_ms", "tpot_p50_ms"):
        assert named[name].value == pytest.approx(20)
    assert named["e2e_p50_ms"].value == pytest.approx(180)
    assert named["ttft_p99.9_ms"].value is None


def test_per_output_token_counts_tokens_and_not_events() -> None:
    requests = [streamed(i, 0.1, 0.05, count=3, output_tokens=6) for i in range(4)]
    figures = figures_of(recording_of(requests))
    assert figures.named["tpot_p50_ms"].value == pytest.approx(20)
    assert figures.named["itl_p50_ms"].value == pytest.approx(50)
    assert "2.00 tokens" in figures.cautions[0]


def test_a_whole_answer_has_no_first_token() -> None:
    named = figures_of(recording_of([request_of(1, 1.5), request_of(2, 2.5)])).named
    assert named["ttft_p50_ms"].value is None
    assert named["e2e_p50_ms"].value == pytest.approx(500)


def test_latency_of_an_open_loop_counts_from_when_a_request_was_due() -> None:
    requests = [request_of(i * 0.1, i * 0.1 + 1.0, sent=i * 0.1 + 0.7) for i in range(50)]
    figures = figures_of(recording_of(requests, arrivals=OPEN))
    assert figures.named["e2e_p50_ms"].value == pytest.approx(1000)
    assert figures.named["queue_p50_ms"].value == pytest.approx(700)
    assert any("due" in caution for caution in figures.cautions)


def test_rates_count_what_ends_inside_the_window() -> None:
    requests = [
        request_of(0.0, 2.0, output_tokens=5),  # warm-up, to its last instant
        request_of(1.0, 2.1, output_tokens=10),
        request_of(3.0, 4.0, output_tokens=30, sentences=3),
        request_of(5.0, 5.1, outcome="HTTP 500", status=500),
        request_of(3.9, 6.1, output_tokens=100),  # drained
    ]
    figures = figures_of(recording_of(requests, opened=2.0, closed=6.0))
    expected = {"answers": 0.5, "tokens": 10.0, "sentences": 1.0, "words": 3.0, "characters": 15.0}
    for name, rate in expected.items():
        assert figures.named[f"{name}_per_second"].value == pytest.approx(rate)
    assert figures.named["offered_per_second"].value == pytest.approx(0.75)
    assert figures.named["prompt_tokens_per_second"].value is None
    assert figures.tokens_counted_by == BY_ANSWERS
    assert errors(figures) == {"HTTP 500": 1}
    assert figures.named["error_rate"].value == pytest.approx(1 / 3)


def test_the_servers_counter_counts_where_answers_do_not() -> None:
    def scrape(time: float, tokens: float) -> ServerSample:
        keys = [f'attendant_tokens_total{{kind="generated",model="{m}"}}' for m in "ab"]
        return ServerSample(time=time, metrics=dict.fromkeys(keys, tokens))

    samples = [scrape(0.0, 5.0), scrape(5.0, 30.0), scrape(10.0, 55.0)]
    figures = figures_of(recording_of([request_of(1, 2)], server=samples))
    assert figures.named["tokens_per_second"].value == pytest.approx(10.0)
    assert figures.tokens_counted_by == BY_SERVER
    without = figures_of(recording_of([request_of(1, 2)]))
    assert without.named["tokens_per_second"].value is None
    assert without.tokens_counted_by is None


def test_what_was_sent_to_fail_is_no_error_and_no_answer() -> None:
    requests = [
        request_of(1, 2),
        request_of(1, 2, outcome="HTTP 400", status=400, is_expected_error=True),
        request_of(1, 2, outcome="cancelled"),
    ]
    figures = figures_of(recording_of(requests), limits={"e2e": 5.0})
    assert figures.refused_as_meant == 1
    assert errors(figures) == {}
    assert figures.named["error_rate"].value == 0.0
    assert figures.named["goodput_share"].value == 1.0


def test_goodput_counts_answers_within_every_limit() -> None:
    requests = [
        streamed(1, first=0.1, gap=0.02, count=5),
        streamed(2, first=0.3, gap=0.02, count=5),  # late first token
        streamed(3, first=0.1, gap=0.09, count=5),  # long gaps
        request_of(4, 4.1, outcome="refused", status=429),
    ]
    recording = recording_of(requests, objective={"ttft_p95_ms": 200.0, "itl_p99_ms": 50.0})
    good = figures_of(recording).goodput
    assert good is not None
    assert good.per_second.value == pytest.approx(0.1)
    assert good.share.value == 0.25
    assert good.broken == {"ttft": 1, "itl": 1}


def test_an_objective_is_judged_with_the_share_of_failures() -> None:
    requests = [streamed(i * 0.1, 0.1, 0.02, 5) for i in range(50)]
    objective = {"ttft_p95_ms": 100.5}
    verdicts = figures_of(recording_of(requests), objective).objective
    assert [str(v.limit) for v in verdicts] == ["error_rate <= 0.01", "ttft_p95_ms <= 100.5"]
    assert all(verdict.is_kept for verdict in verdicts)
    failing = [*requests, request_of(1, 2, outcome="timeout")]
    assert [v.is_kept for v in figures_of(recording_of(failing), objective).objective] == [
        False,
        True,
    ]


def test_fairness_is_jains_index_of_tokens() -> None:
    requests = [
        request_of(1, 2, user=0, output_tokens=30),
        request_of(1, 2, user=1, output_tokens=10),
    ]
    arrivals = {"kind": "closed", "users": 4}  # two got nothing
    found = figures_of(recording_of(requests, arrivals=arrivals)).fairness
    assert found.index.value == pytest.approx(40**2 / (4 * (30**2 + 10**2)))
    assert (found.users, found.shared) == (4, "tokens")


def test_the_worst_user_is_the_slowest_with_enough_answers() -> None:
    fast = [request_of(i * 0.1, i * 0.1 + 0.1, user=0) for i in range(30)]
    slow = [request_of(i * 0.1, i * 0.1 + 0.4, user=1) for i in range(30)]
    one = [request_of(1, 9, user=2)]
    figures = figures_of(recording_of([*fast, *slow, *one], arrivals=OPEN))
    assert figures.named["worst_user_e2e_p95_ms"].value == pytest.approx(400)


def test_kinds_are_told_apart() -> None:
    greedy = [request_of(i * 0.1, i * 0.1 + 0.1) for i in range(30)]
    beam = [request_of(i * 0.1, i * 0.1 + 0.3, kind="beam4") for i in range(20)]
    parts = figures_of(recording_of([*greedy, *beam])).parts
    assert [(part.name, part.answers) for part in parts] == [("greedy", 30), ("beam4", 20)]
    assert parts[1].distributions["e2e"].percentiles[95.0].value == pytest.approx(0.3)
    assert figures_of(recording_of(greedy)).parts == []


def test_the_series_adds_up() -> None:
    recording = simulated(rate=40, seconds=20)
    found = figures_of(recording).series
    assert found.width == 1.0
    assert found.offered.sum() == len(recording.requests)
    assert found.answered.sum() == len(recording.requests)
    assert found.tokens.sum() == sum(r.output_tokens or 0 for r in recording.requests)
    assert found.in_flight[-1] == 0
    assert found.failed.sum() == 0


def test_a_stall_shows_in_the_series() -> None:
    found = figures_of(simulated(rate=20, seconds=20, stall=(10, 2))).series
    assert found.latencies["ttft"][95.0][10] > 1.5
    assert found.latencies["ttft"][95.0][5] < 0.5


def test_an_overloaded_server_is_noticed() -> None:
    kept, overloaded = (simulated(rate=rate, seconds=20) for rate in (20, 60))
    assert not any("a longer run" in caution for caution in figures_of(kept).cautions)
    assert any("a longer run" in caution for caution in figures_of(overloaded).cautions)


def test_a_busy_generator_is_noticed() -> None:
    busy = GeneratorSample(time=5.0, cpu=(0.2, 0.97), lag_ms=12.0)
    found = figures_of(recording_of([request_of(1, 2)], generator=[busy], is_complete=False))
    assert ["cut off" in found.cautions[0], "97%" in found.cautions[1]] == [True, True]
    assert "12.0 ms" in found.cautions[2]


def test_a_rate_near_the_ceiling_is_noticed() -> None:
    requests = [request_of(i * 0.01, i * 0.01 + 0.005) for i in range(1000)]
    near = {"processes": 1, "ceiling_requests_per_second": 120.0}
    recording = recording_of(requests)
    assert figures_of(recording).cautions == []
    found = figures_of(replace(recording, run=replace(recording.run, generator=near)))
    assert "83%" in found.cautions[0]


def test_a_run_without_requests_has_no_figures() -> None:
    figures = figures_of(recording_of([]), objective={"ttft_p95_ms": 100.0})
    assert figures.named["e2e_p50_ms"].value is None
    assert not any(verdict.is_kept for verdict in figures.objective)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        ({"num_texts": 3}, []),
        ({"num_texts": 2}, ["There are 2 texts, and 3 were asked for: from the second time"]),
        ({"num_texts": 3, "skipped_texts": 1}, ["There are 3 texts, and 4 were asked for: from"]),
        ({"num_texts": 2, "repeats": True}, ["There are 2 texts, and 3 were asked for: they came"]),
    ],
)
def test_texts_that_come_again_are_told(work: dict[str, Any], told: list[str]) -> None:
    found = figures_of(recording_of([request_of(1, 2) for _ in range(3)], work=work)).cautions
    assert len(found) == len(told)
    assert all(caution.startswith(start) for caution, start in zip(found, told, strict=True))


def test_a_run_that_ended_before_it_began_has_figures() -> None:
    found = figures_of(recording_of([], opened=0.0, closed=0.0))
    assert found.series.times.tolist() == [0.0]
    assert found.series.offered.tolist() == [0.0]
    assert found.named["answers_per_second"].value is None
