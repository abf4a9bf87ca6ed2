"""A short soak; `make soak` has the long one."""

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.soak.measures import Sample, series
from tests.soak.run import main


@pytest.mark.servers
@pytest.mark.timeout(600)
def test_a_minute_with_a_kill(tmp_path: Path) -> None:
    """Whether memory is flat is not told by a minute."""
    page = tmp_path / "soak.html"
    words = ["--minutes", "1", "--kill-every", "25", "--clients", "4", "--output", str(page)]
    said = CliRunner().invoke(main, words).output
    assert "WRONG" not in said, said
    assert re.search("^ *wrong or without an end +0 *$", said, re.MULTILINE), said
    assert page.read_text().count("<svg") == 3


def test_growth_is_told_without_the_warm_up_and_new_processes() -> None:
    def at(second: int) -> Sample:
        is_odd = second < 30 or 50 <= second < 60
        return Sample(second, 500.0 if is_odd else 100.0 + (second > 70) * 10, 10, 10)

    samples = [at(second) for second in range(100)]
    assert series(samples, "pss_mib", 30, [50], 10).growth == pytest.approx(0.1)
    assert series(samples, "num_files", 30, [50], 10).growth == 0
    assert np.isclose(series(samples, "pss_mib", 0, [], 0).growth, -0.78)
