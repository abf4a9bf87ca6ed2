"""Limits are read as people write them, and refused with what would be right."""

import pytest

from loadtest.statistics.estimates import Estimate
from loadtest.statistics.limits import (
    FIGURES,
    Limit,
    Verdict,
    known_figure,
    objective_limits,
    parse_assertion,
    parse_objective,
    parse_request_limits,
    request_limits,
)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_own_name(name: str) -> None:
    assert known_figure(name) == name


def test_assertions_are_read() -> None:
    assert parse_assertion("p95_ttft_ms<200") == Limit("p95_ttft_ms", "<", 200.0)
    assert parse_assertion(" tokens_per_second >= 1e3 ") == Limit("tokens_per_second", ">=", 1000.0)
    assert parse_assertion("p99.9_e2e_ms<=5") == Limit("p99.9_e2e_ms", "<=", 5.0)


def test_objectives_are_read() -> None:
    assert parse_objective("p95_ttft_ms=200, p99_itl_ms=50") == {
        "p95_ttft_ms": 200.0,
        "p99_itl_ms": 50.0,
    }
    assert parse_request_limits("ttft_ms=200,e2e_ms=1000") == {"ttft": 0.2, "e2e": 1.0}
    assert request_limits({"p95_ttft_ms": 200.0, "tokens_per_second": 9.0}) == {"ttft": 0.2}


def test_rates_are_bounded_from_below() -> None:
    limits = objective_limits({"p95_ttft_ms": 200.0, "tokens_per_second": 100.0})
    assert [str(limit) for limit in limits] == [
        "error_rate <= 0.01",
        "p95_ttft_ms <= 200",
        "tokens_per_second >= 100",
    ]


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (parse_assertion, "p95_ttft_ms", "not of the form p95_ttft_ms<200"),
        (parse_assertion, "p95_ttft_ms<fast", "'fast'"),
        (parse_assertion, "p95_ttft_ms<nan", "'nan'"),
        (parse_assertion, "p96_ttft_ms<1", "did you mean"),
        (parse_assertion, "ttft_p95_ms<1", "did you mean p95_ttft_ms?"),
        (parse_assertion, "speed>1", "tokens_per_second"),
        (parse_objective, "p95_ttft_ms", "p95_ttft_ms=200"),
        (parse_objective, "p95_ttft_ms=-1", "'-1'"),
        (parse_request_limits, "p95_ttft_ms=200", "ttft_ms, itl_ms"),
        (parse_request_limits, "ttft=200", "ttft_ms, itl_ms"),
    ],
)
def test_what_cannot_be_read_is_told(read: object, text: str, says: str) -> None:
    assert callable(read)
    with pytest.raises(ValueError) as caught:
        read(text)
    assert says in str(caught.value)


def test_what_was_not_measured_keeps_no_limit() -> None:
    limit = Limit("p95_ttft_ms", "<", 200.0)
    assert Verdict(limit, Estimate(199.0)).is_kept
    assert not Verdict(limit, Estimate(200.0)).is_kept
    assert not Verdict(limit, Estimate(None, reason="3 samples")).is_kept
