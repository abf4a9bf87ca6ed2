"""The generator can say how much it can do."""

import pytest

from loadtest.generator import ceiling


def test_the_ceiling_is_of_requests_and_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "_SECONDS", 2.5)
    monkeypatch.setattr(ceiling, "_WARM_UP_SECONDS", 0.2)
    found = ceiling.measure_ceiling()
    assert 500 < found.requests_per_second < 100_000
    assert found.requests_per_second < found.chunks_per_second < 2_000_000
