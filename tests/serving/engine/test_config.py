"""Sizes and budgets."""

from pathlib import Path
from typing import Any

import pytest

from serving.engine.config import EngineConfig, available_cpus


@pytest.mark.parametrize(
    ("text", "expected"), [("100000 100000\n", 1), ("50000 100000\n", 1), ("10 one\n", None)]
)
def test_a_containers_quota_bounds_the_threads(
    text: str, expected: int | None, tmp_path: Path
) -> None:
    by_affinity = available_cpus(tmp_path / "missing")
    (tmp_path / "cpu.max").write_text(text)
    assert available_cpus(tmp_path / "cpu.max") == (expected or by_affinity)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert available_cpus(tmp_path / "cpu.max") == by_affinity


@pytest.mark.parametrize(
    "wrong",
    [
        {"slots": 0},
        {"max_step_tokens": 0},
        {"max_waiting": -1},
        {"prefix_cache_bytes": -1},
        {"device": "tpu"},
    ],
)
def test_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EngineConfig(**wrong)
