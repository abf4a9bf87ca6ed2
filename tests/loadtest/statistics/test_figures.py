"""Figures of made recordings, which are known exactly."""

import pytest

from loadtest.records import GeneratorSample, ServerSample
from loadtest.statistics.figures import errors, figures_of
from loadtest.statistics.loads import is_drifting
from loadtest.statistics.rates import BY_ANSWERS, BY_SERVER
from tests.loadtest.recordings import OPEN, recording_of, request_of, simulated, streamed


def test_latencies_of_streams() -> None:
    requests = [streamed(i * 0.2, first=0.1, gap=0.02, count=5) for i in range(40)]
    named = figures_of(recording_of(requests)).named
    for name in ("p50_ttft_ms", "p95_ttft_ms", "mean_ttft_ms", "max_ttft_ms"):
        assert named[name].value == pytest.approx(100)
    for name in ("p99_itl_ms", "p50_tpot_ms"):
        assert named[name].value == pytest.approx(20)
    assert named["p50_e2e_ms"].value == pytest.approx(180)
    assert named["p99.9_ttft_ms"].value is None


def test_per_output_token_counts_tokens_and_not_events() -> None:
    requests = [streamed(i, 0.1, 0.05, count=3, output_tokens=6) for i in range(4)]
    figures = figures_of(recording_of(requests))
    assert figures.named["p50_tpot_ms"].value == pytest.approx(20)
    assert figures.named["p50_itl_ms"].value == pytest.approx(50)


def test_a_whole_answer_has_no_first_token() -> None:
    named = figures_of(recording_of([request_of(1, 1.5), request_of(2, 2.5)])).named
    assert named["p50_ttft_ms"].value is None
    assert named["p50_e2e_ms"].value == pytest.approx(500)


def test_latency_of_an_open_loop_counts_from_when_a_request_was_due() -> None:
    requests = [request_of(i * 0.1, i * 0.1 + 1.0, sent=i * 0.1 + 0.7) for i in range(50)]
    figures = figures_of(recording_of(requests, arrivals=OPEN))
    assert figures.named["p50_e2e_ms"].value == pytest.approx(1000)
    assert figures.named["p50_queue_ms"].value == pytest.approx(700)
    assert any("due" in warning for warning in figures.warnings)


def test_rates_count_what_ends_inside_the_window() -> None:
    requests = [
        request_of(0.0, 2.0, output_tokens=5),  # warm-up, to its last instant
        request_of(1.0, 2.1, output_tokens=10),
        request_of(3.0, 4.0, output_tokens=30, sentences=3),
        request_of(5.0, 5.1, outcome="HTTP 500", status=500),
        request_of(3.9, 6.1, output_tokens=100),  # drained
    ]
    figures = figures_of(recording_of(requests, opened=2.0, closed=6.0))
    expected = {"answers": 0.5, "tokens": 10.0, "sentences": 1.0}
    for name, rate in expected.items():
        assert figures.named[f"{name}_per_second"].value == pytest.approx(rate)
    assert figures.named["offered_per_second"].value == pytest.approx(0.75)
    assert figures.tokens_counted_by == BY_ANSWERS
    assert errors(figures) == {"HTTP 500": 1}
    assert figures.named["error_rate"].value == pytest.approx(1 / 3)


def test_the_servers_counter_counts_where_answers_do_not() -> None:
    def scrape(time: float, tokens: float) -> ServerSample:
        return ServerSample(time=time, generated_tokens=2 * tokens)

    samples = [scrape(0.0, 5.0), scrape(5.0, 30.0), scrape(10.0, 55.0)]
    figures = figures_of(recording_of([request_of(1, 2)], server=samples))
    assert figures.named["tokens_per_second"].value == pytest.approx(10.0)
    assert figures.tokens_counted_by == BY_SERVER
    without = figures_of(recording_of([request_of(1, 2)]))
    assert without.named["tokens_per_second"].value is None
    assert without.tokens_counted_by is None


def test_a_request_that_was_disconnected_is_no_error_and_no_answer() -> None:
    requests = [request_of(1, 2), request_of(1, 2, outcome="cancelled")]
    figures = figures_of(recording_of(requests), limits={"e2e": 5.0})
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
    recording = recording_of(requests, objective={"p95_ttft_ms": 200.0, "p99_itl_ms": 50.0})
    good = figures_of(recording).goodput
    assert good is not None
    assert good.per_second.value == pytest.approx(0.1)
    assert good.share.value == 0.25
    assert good.broken == {"ttft": 1, "itl": 1}


def test_an_objective_is_judged_with_the_share_of_failures() -> None:
    requests = [streamed(i * 0.1, 0.1, 0.02, 5) for i in range(50)]
    objective = {"p95_ttft_ms": 100.5}
    verdicts = figures_of(recording_of(requests), objective).objective
    assert [str(v.limit) for v in verdicts] == ["error_rate <= 0.01", "p95_ttft_ms <= 100.5"]
    assert all(verdict.is_kept for verdict in verdicts)
    failing = [*requests, request_of(1, 2, outcome="timeout")]
    assert [v.is_kept for v in figures_of(recording_of(failing), objective).objective] == [
        False,
        True,
    ]


def test_the_series_adds_up() -> None:
    recording = simulated(rate=40, seconds=20)
    found = figures_of(recording).series
    assert found.width == 1.0
    assert found.offered.sum() == len(recording.requests)
    assert found.answered.sum() == len(recording.requests)
    assert found.in_flight[-1] == 0
    assert found.failed.sum() == 0


def test_a_stall_shows_in_the_series() -> None:
    found = figures_of(simulated(rate=20, seconds=20, stall=(10, 2))).series
    assert found.latencies["ttft"][95.0][10] > 1.5
    assert found.latencies["ttft"][95.0][5] < 0.5


def test_an_overloaded_server_is_noticed() -> None:
    kept, overloaded = (simulated(rate=rate, seconds=20) for rate in (20, 60))
    assert not is_drifting(kept)
    assert is_drifting(overloaded)


def test_a_busy_generator_is_noticed() -> None:
    busy = GeneratorSample(time=5.0, cpu=0.97, lag_ms=12.0)
    found = figures_of(recording_of([request_of(1, 2)], generator=[busy], is_complete=False))
    cut, cpu, lag = found.warnings
    assert ("cut off" in cut, "97%" in cpu, "12.0 ms" in lag) == (True, True, True)
