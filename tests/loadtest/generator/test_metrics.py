"""Counters and histograms are read from the text format; what else stands there is left out."""

import pytest

from loadtest.generator.metrics import samples

TEXT = """\
# TYPE attendant_tokens_total counter
attendant_tokens_total{model="m",kind="generated"} 12
attendant_tokens_created{model="m",kind="generated"} 1.7e9
# TYPE attendant_rows gauge
attendant_rows{model="m"} 3
# TYPE attendant_request_seconds histogram
attendant_request_seconds_bucket{le="0.1"} 4
attendant_request_seconds_bucket{le="+Inf"} 5
attendant_request_seconds_sum 0.7
attendant_request_seconds_count 5
# TYPE python_gc_collections_total counter
python_gc_collections_total 9
"""


def test_counters_and_histograms_are_read() -> None:
    assert samples(TEXT) == {
        'attendant_tokens_total{kind="generated",model="m"}': 12.0,
        'attendant_request_seconds_bucket{le="0.1"}': 4.0,
        'attendant_request_seconds_bucket{le="+Inf"}': 5.0,
        "attendant_request_seconds_sum": 0.7,
        "attendant_request_seconds_count": 5.0,
    }


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="html"):
        samples("<html>42</html>")
