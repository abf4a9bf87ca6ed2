"""An int8 linear layer of the native kernels has the bits of ONNX Runtime's own operators."""

import numpy as np
import pytest

from export.graph.functions import QUANTIZED_LINEAR
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, Array, model_of, native, portable

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

SHAPES = [(1, 1), (37, 51), (64, 64), (130, 65), (512, 200), (300, 1030)]
ROWS = [1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 63, 64, 65, 130]


def layer(inputs: int, outputs: int, rank: int = 2) -> bytes:
    random = np.random.default_rng(inputs)
    weights: dict[str, Array] = {
        "weight": random.integers(-127, 128, (inputs, outputs)).astype(np.int8),
        "scale": (random.random(outputs) * 1e-3).astype(np.float32),
        "bias": random.standard_normal(outputs).astype(np.float32),
    }
    axes = ["rows", "tokens"][: rank - 1]
    x, y = ("x", FLOAT, [*axes, "width"]), ("y", FLOAT, [*axes, outputs])
    return model_of(QUANTIZED_LINEAR, [x], [y], weights)


def vectors(*shape: int) -> Array:
    """Return vectors of which some are zero, tiny or large."""
    random = np.random.default_rng(shape[0])
    x = random.standard_normal(shape).astype(np.float32)
    x[1:2], x[2:3], x[3:4] = 0, x[2:3] * 1e-30, x[3:4] * 1e6
    return x


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_the_bits_are_those_of_the_operators(inputs: int, outputs: int, threads: int) -> None:
    model = layer(inputs, outputs)
    fast, plain = native(model, threads), portable(model, threads)
    for rows in ROWS:
        x = vectors(rows, inputs)
        assert np.array_equal(fast({"x": x})[0], plain({"x": x})[0]), rows


def test_levels_near_a_half_are_rounded_as_the_operators_do() -> None:
    """Numbers halfway between two levels, and beside that: there a division decides."""
    model = layer(512, 64)
    halves = (np.arange(512) % 254 - 127 + 0.5) / 127
    x = np.stack([np.nextafter(halves.astype(np.float32), direction) for direction in (-9, 0, 9)])
    x = np.concatenate([x, halves.astype(np.float32)[None]]).astype(np.float32)
    x[:, 0] = 1
    assert np.array_equal(native(model)({"x": x})[0], portable(model)({"x": x})[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_so_many_rows_that_their_products_exceed_32_bits(threads: int) -> None:
    """The number of a task, one for 32 rows, times the number of rows."""
    model, rows = layer(1, 1), 300_000
    x = np.random.default_rng(1).standard_normal((rows, 1)).astype(np.float32)
    assert np.array_equal(native(model, threads)({"x": x})[0], portable(model)({"x": x})[0])


def test_more_inputs_than_sums_of_32_bits_can_hold_are_refused() -> None:
    with pytest.raises(Exception, match="QuantizedLinear: the weight is too large"):
        native(layer(2**17 + 1, 1))


def test_a_row_has_the_same_bits_alone() -> None:
    run = native(layer(130, 65))
    x = vectors(70, 130)
    together = run({"x": x})[0]
    for row in range(0, 70, 7):
        assert np.array_equal(run({"x": x[row : row + 1]})[0][0], together[row])


def test_any_rank_and_no_rows() -> None:
    run = native(layer(37, 51, rank=3))
    x = vectors(4, 3, 37)
    flat = native(layer(37, 51))({"x": x.reshape(12, 37)})[0]
    assert np.array_equal(run({"x": x})[0].reshape(12, 51), flat)
    assert run({"x": x[:, :0]})[0].shape == (4, 0, 51)


def test_a_wrong_width_is_an_error() -> None:
    with pytest.raises(Exception, match=r"x must be \[\.\.\., inputs\]"):
        native(layer(37, 51))({"x": vectors(2, 38)})
