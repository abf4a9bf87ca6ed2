"""Row-wise int8: close to the float product, row by row, and exact about zeros."""

import numpy as np
import pytest

from export.graph.matrix import Matrix
from export.graph.quantise import RowQuantiser, quantise_channels
from export.graph.writer import GraphWriter, Value
from tests.export.sessions import session_of

ROUNDING = 1.0001  # of fp32, which divides and multiplies by the ranges


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x times weight transposed, through the quantised graph."""
    graph = GraphWriter("product")
    rows = graph.input("x", "float32", (x.shape[1],))
    y = RowQuantiser(graph).linear(rows, "weight", Matrix.of_array(weight))
    graph.output("y", y, "float32", (len(weight),))
    (result,) = session_of(graph).run(None, {"x": x})
    return np.asarray(result)


def test_every_row_is_close_however_loud_the_others_are() -> None:
    """A number lies at most half a level off, of its row or channel, and the sums are exact: so far
    may a product be, at worst, and no farther. What saturates is.
    """
    random = np.random.default_rng(0)
    weight = random.standard_normal((40, 64)).astype(np.float32)
    x = random.standard_normal((6, 64)) * 10.0 ** np.arange(-3, 3)[:, None]
    x = x.astype(np.float32)
    error = np.abs(product(x, weight) - x @ weight.T)
    x, weight = np.abs(x), np.abs(weight)
    x_off, weight_off = (each.max(axis=1, keepdims=True) / 254 for each in (x, weight))
    bound = x_off * weight.sum(axis=1) + x.sum(axis=1, keepdims=True) * weight_off.T
    assert (error <= (bound + 64 * x_off * weight_off.T) * ROUNDING).all()


@pytest.mark.parametrize("is_nested", [False, True])
def test_sums_of_levels_are_exact(is_nested: bool) -> None:
    """Weights and inputs at their ends, where two products of unsigned and signed bytes do not fit
    into 16 bits: processors without VNNI saturate there unless an option prevents it.
    """
    weight = np.full((3, 64), -1.0, np.float32)
    x = np.array([[1.0], [0.5], [1e3]], np.float32).repeat(64, axis=1)
    actual = product_in_loop(x, weight) if is_nested else product(x, weight)
    np.testing.assert_allclose(actual, x @ weight.T, rtol=1e-6)


def product_in_loop(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    graph = GraphWriter("loop")
    rows = graph.input("x", "float32", (x.shape[1],))
    quantiser = RowQuantiser(graph)

    def write_iteration(number: Value, rows: Value) -> list[Value]:
        return [rows, quantiser.linear(rows, "weight", Matrix.of_array(weight))]

    _, actual = graph.loop(
        graph.constant(1, "int64"), [rows], "float32", write_iteration, num_scan_outputs=1
    )
    graph.output("y", actual.squeeze(0), "float32", (len(weight),))
    (result,) = session_of(graph).run(None, {"x": x})
    return np.asarray(result)


def test_rows_and_channels_of_zeros_give_zero() -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((5, 16)).astype(np.float32)
    weight[2] = 0
    x = random.standard_normal((3, 16)).astype(np.float32)
    x[1] = 0
    y = product(x, weight)
    assert (y[1] == 0).all() and (y[:, 2] == 0).all() and (y[0, :2] != 0).all()


def test_channels_use_all_levels() -> None:
    weight = np.array([[0.5, -1.0], [100.0, 20.0]], np.float32)
    levels, scale = quantise_channels(weight)
    assert levels.tolist() == [[64, 127], [-127, 25]]
    assert np.allclose(scale, [1 / 127, 100 / 127])
