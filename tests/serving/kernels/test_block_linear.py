"""A linear layer in blocks of the native kernels, against a plain loop and ONNX Runtime's
MatMulNBits.
"""

import numpy as np
import pytest

from export.graph.block_levels import BLOCK, eight_bits, four_bits, pack_blocks
from export.graph.functions import BLOCK_QUANTIZED_LINEAR
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, Array, model_of, native, portable
from tests.serving.kernels.test_linear import vectors

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

SHAPES = [(1, 1), (16, 32), (37, 51), (130, 65), (576, 200), (300, 1030)]
ROWS = [1, 2, 3, 4, 5, 7, 8, 9, 17, 64]
TOLERANCE = 1e-5  # of the largest product of a row, for the rounding of sums


# Of blocks, or shared by two of them, as in weights that come from GGUF files.
SCALES = ["single", "shared", "shared fp16"]


def layer(
    inputs: int, outputs: int, has_bias: bool = True, bits: int = 8, scales: str = "single"
) -> tuple[bytes, dict[str, Array]]:
    """Return a model of the layer, and its weights in the kernels' blocks, counted from zero."""
    random = np.random.default_rng(inputs)
    weight = random.standard_normal((outputs, inputs)).astype(np.float32)
    levels, scale = eight_bits([weight]) if bits == 8 else four_bits([weight])[:2]
    if bits == 4:
        scale[:, 1::2] *= 1.5
    if scales == "shared fp16":
        scale = scale.astype(np.float16).astype(np.float32)
        scale[1::3, ::2] = 2.0**-24  # the smallest number of fp16
    if scales != "single":
        scale[:, 1::2] = scale[:, : scale.shape[1] // 2 * 2 : 2]
    levels[0, 0], scale[0, 0] = 2 ** (bits - 1), 1e-14  # zeros
    stored = levels if bits == 8 else pack_blocks(levels)
    weights: dict[str, Array] = {"levels": stored, "scale": scale}
    if has_bias:
        weights["bias"] = random.standard_normal(outputs).astype(np.float32)
    ports = [("x", FLOAT, ["rows", "width"])], [("y", FLOAT, ["rows", outputs])]
    model = model_of(BLOCK_QUANTIZED_LINEAR, *ports, weights, N=outputs, K=inputs, bits=bits)
    centred = levels.astype(np.int64) - 2 ** (bits - 1)
    if scales != "single":
        centred = np.pad(centred, ((0, 0), (0, levels.shape[1] % 2), (0, 0)))
        centred, scale = centred.reshape(outputs, -1, 2 * BLOCK), scale.copy()
        scale[0, 0] = scale[0, min(1, scale.shape[1] - 1)]
        scale = scale[:, ::2]
    return model, {**weights, "scale": scale, "levels": centred}


def plain_product(x: Array, weights: dict[str, Array]) -> Array:
    """Multiply the levels of both sides in integers, block by block, and add up in double
    precision.
    """
    rows, inputs = x.shape
    _, blocks, size = weights["levels"].shape
    padded = np.zeros((rows, blocks * size), np.float32)
    padded[:, :inputs] = x
    cut = padded.reshape(rows, blocks, size)
    scale = np.abs(cut).max(axis=2, keepdims=True) / np.float32(127)
    factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    levels = np.rint(cut * factor).astype(np.int64)
    sums = np.einsum("rbk,nbk->rnb", levels, weights["levels"])
    scales = scale[:, None, :, 0].astype(np.float64) * weights["scale"]
    product: Array = (sums * scales).sum(axis=2) + weights.get("bias", np.float32(0))
    return product


def differences(found: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest number of its row."""
    scale = np.abs(expected).max(axis=1, keepdims=True) + 1e-30
    return float((np.abs(found - expected) / scale).max())


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_products_are_those_of_a_plain_loop(
    inputs: int, outputs: int, threads: int, has_bias: bool, bits: int, scales: str
) -> None:
    model, weights = layer(inputs, outputs, has_bias, bits, scales)
    run = native(model, threads)
    for rows in ROWS:
        x = vectors(rows, inputs)
        assert differences(run({"x": x})[0], plain_product(x, weights)) < TOLERANCE, rows


@pytest.mark.parametrize("bits", [8, 4])
def test_products_are_those_of_the_operator(bits: int) -> None:
    """Both round sums in another order."""
    model, _ = layer(576, 200, bits=bits)
    x = vectors(17, 576)
    x[2] = 0  # of tiny numbers it computes no levels
    actual, expected = native(model)({"x": x})[0], portable(model)({"x": x})[0]
    assert differences(actual, expected) < 5 * TOLERANCE


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_row_has_the_same_bits_alone(bits: int, scales: str) -> None:
    run, x = native(layer(130, 65, True, bits, scales)[0], threads=2), vectors(300, 130)
    together = run({"x": x})[0]
    for number in (1, 2, 3, 5, 8, 9, 16, 17, 31, 129):
        for first in range(0, 300 - number, 37):
            part = run({"x": x[first : first + number]})[0]
            assert np.array_equal(part, together[first : first + number])


def test_wrong_shapes_are_refused() -> None:
    run = native(layer(37, 51)[0])
    with pytest.raises(Exception, match=r"x must be \[..., inputs\]"):
        run({"x": vectors(2, 36)})
    levels, scale = eight_bits([np.ones((3, 40), np.float32)])
    ports = [("x", FLOAT, ["rows", 99])], [("y", FLOAT, ["rows", 3])]
    weights = {"levels": levels, "scale": scale}
    with pytest.raises(Exception, match="K does not fit the blocks"):
        native(model_of(BLOCK_QUANTIZED_LINEAR, *ports, weights, N=3, K=99, bits=8))
