"""Sizes and budgets."""

from typing import Any

import pytest

from serving.engine.config import EngineConfig


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
