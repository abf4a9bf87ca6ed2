"""An export holds one weight at a time, however many there are."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from export.bundling.writer import export_checkpoint
from export.graph.model import Weights
from models.checkpoint import Checkpoint
from models.safetensors import Array, Arrays
from serving.bundle.manifest import Precision
from tests.tiny import tiny_checkpoint

SIZES = {"num_layers": 12, "d_model": 256, "num_heads": 8, "ffn_dim": 1024, "head_dim": 32}


class Reader:
    """Draws a weight anew each time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def __call__(self) -> Array:
        return np.random.default_rng(0).standard_normal(self._shape, np.float32)


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A checkpoint whose weights are nowhere in memory."""
    known = tiny_checkpoint("llama", tmp_path_factory.mktemp("model"), **SIZES)
    readers = {name: Reader(array.shape) for name, array in known.weights.items()}
    return replace(known, weights=Arrays(readers))


@pytest.mark.parametrize("precision", [Precision.FP32, Precision.INT8, Precision.INT4])
def test_memory_is_a_part_of_what_the_weights_take(
    unread: Checkpoint, precision: Precision, tmp_path: Path
) -> None:
    total = sum(array.nbytes for array in unread.weights.values())
    tracemalloc.start()
    try:
        export_checkpoint(unread, tmp_path / "bundle", precision)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * total, (peak, total)


def test_each_weight_is_reported_once() -> None:
    reported: list[bool] = []
    arrays = {"a": np.zeros(2, np.float32), "b": np.zeros(3, np.float32)}
    weights = Weights(arrays, report=lambda: reported.append(True))
    for name, size in (("a", 2), ("b", 3), ("a", 2)):
        weights.take(name, size)
    assert len(reported) == 2
