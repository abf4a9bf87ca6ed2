"""The server's counters and histograms, read as Prometheus reads them."""

import pytest

from loadtest import capacity
from loadtest.records import ServerSample
from loadtest.statistics.server import (
    HISTOGRAMS,
    compare_with_server,
    histogram_quantile,
    increase,
    name_and_labels,
)
from serving.engine_metrics import EngineMetrics
from serving.metrics import Metrics, Outcome
from tests.loadtest.recordings import recording_of, request_of

SECONDS = "attendant_request_seconds_bucket"


def test_names_are_taken_apart() -> None:
    assert name_and_labels('a_total{x="1",y="a \\"b\\", c"}') == (
        "a_total",
        (("x", "1"), ("y", 'a "b", c')),
    )
    assert name_and_labels("plain") == ("plain", ())


def test_an_increase_sums_models_and_knows_new_ones() -> None:
    before = {'t_total{kind="a",model="m"}': 5.0, 't_total{kind="b",model="m"}': 1.0}
    after = {**before, 't_total{kind="a",model="m"}': 9.0, 't_total{kind="a",model="n"}': 2.0}
    assert increase(before, after, "t_total", kind="a") == 6.0
    assert increase(before, after, "t_total") == 6.0
    assert increase(before, after, "t") is None


def test_quantiles_of_buckets_are_prometheus_ones() -> None:
    buckets = {0.1: 50.0, 0.2: 90.0, float("inf"): 100.0}
    assert histogram_quantile(buckets, 0.25) == pytest.approx(0.05)
    assert histogram_quantile(buckets, 0.7) == pytest.approx(0.15)
    assert histogram_quantile(buckets, 0.95) is None
    assert histogram_quantile({}, 0.5) is None


def scrape(time: float, answers: int) -> ServerSample:
    labels = 'model="m",protocol="openai"'
    return ServerSample(
        time=time,
        metrics={
            f'attendant_tokens_total{{kind="generated",{labels}}}': answers * 11.0,
            f'attendant_requests_total{{outcome="success",{labels}}}': float(answers),
            f'{SECONDS}{{le="0.1",outcome="success",{labels}}}': 0.0,
            f'{SECONDS}{{le="0.2",outcome="success",{labels}}}': float(answers),
            f'{SECONDS}{{le="+Inf",outcome="success",{labels}}}': float(answers),
            f'{SECONDS}{{le="0.1",outcome="refused",{labels}}}': answers * 5.0,
            f'{SECONDS}{{le="+Inf",outcome="refused",{labels}}}': answers * 5.0,
        },
    )


def test_both_views_stand_side_by_side() -> None:
    requests = [request_of(i * 0.1, i * 0.1 + 0.2, output_tokens=10) for i in range(90)]
    recording = recording_of(requests, server=[scrape(0.0, 7), scrape(5.0, 20), scrape(10.0, 97)])
    found = {each.name: each for each in compare_with_server(recording)}
    tokens, median = found["generated tokens"], found["request p50"]
    assert (tokens.client, tokens.server) == (900.0, 990.0)
    assert tokens.difference == pytest.approx(0.1)
    assert found["answers"].difference == 0.0
    assert (median.client, median.server) == pytest.approx((0.2, 0.15))


def test_the_servers_metrics_have_these_names() -> None:
    metrics = Metrics("replica")
    EngineMetrics(metrics)
    kinds = {family.name: family.type for family in metrics.registry.collect()}
    assert {kinds[name] for name in HISTOGRAMS} == {"histogram"}
    assert kinds["attendant_tokens"] == kinds["attendant_requests"] == "counter"
    assert {*capacity.WORK} <= {*kinds}
    assert {Outcome.SUCCESS, Outcome.OVERLOADED} == {"success", "overloaded"}


def test_without_scrapes_there_is_nothing_to_compare() -> None:
    assert compare_with_server(recording_of([request_of(1, 2)])) == []
    once = recording_of([request_of(1, 2)], server=[scrape(5.0, 2)])
    assert compare_with_server(once) == []
