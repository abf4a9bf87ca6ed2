"""Row-wise int8: close to the float product, row by row, and exact about zeros."""

import numpy as np
import pytest

from export.graph import GraphWriter, Value
from export.quantise import NONE, Outliers, RowQuantiser, quantise_channels
from tests.export.sessions import session_of

ROUNDING = 1.0001  # of fp32, which divides and multiplies by the ranges


class Product:
    """x times weight transposed, through the quantised graph."""

    def __init__(self, weight: np.ndarray, outliers: Outliers = NONE) -> None:
        graph = GraphWriter("product")
        rows = graph.input("x", "float32", (weight.shape[1],))
        y = RowQuantiser(graph, {"weight": outliers}).linear(rows, "weight", weight)
        graph.output("y", y, "float32", (len(weight),))
        self.session = session_of(graph)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        (result,) = self.session.run(None, {"x": x})
        return np.asarray(result)


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return Product(weight)(x)


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


@pytest.mark.parametrize("is_in_loop", [False, True])
def test_sums_of_levels_are_exact(is_in_loop: bool) -> None:
    """Weights and inputs at their ends, where two products of unsigned and signed bytes do not fit
    into 16 bits: processors without VNNI saturate there unless they are told not to.
    """
    weight = np.full((3, 64), -1.0, np.float32)
    x = np.array([[1.0], [0.5], [1e3]], np.float32).repeat(64, axis=1)
    found = product_in_loop(x, weight) if is_in_loop else product(x, weight)
    np.testing.assert_allclose(found, x @ weight.T, rtol=1e-6)


def product_in_loop(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    graph = GraphWriter("loop")
    rows = graph.input("x", "float32", (x.shape[1],))
    quantiser = RowQuantiser(graph)

    def turn(number: Value, rows: Value) -> list[Value]:
        return [rows, quantiser.linear(rows, "weight", weight)]

    _, found = graph.loop(graph.constant(1, "int64"), [rows], "float32", turn, num_collected=1)
    graph.output("y", graph.op.Squeeze(found, graph.ints(0)), "float32", (len(weight),))
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


def test_outliers_are_multiplied_as_they_are_and_spoil_no_row() -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((40, 80)).astype(np.float32)
    x = random.standard_normal((6, 80)).astype(np.float32)
    columns = np.array([3, 17, 79])
    without = np.delete(np.arange(80), columns)
    expected = x[:, without] @ weight[:, without].T
    x[:, columns] *= 1000
    large = x[:, columns] @ weight[:, columns].T
    found = Product(weight, Outliers(columns, rest_is_even=True))(x) - large
    assert np.abs(found - expected).max() < 0.3 < np.abs(product(x, weight) - large).max()


def test_uneven_inputs_are_rounded_to_254ths_of_a_level() -> None:
    """Weights on their levels, so that nothing is off but the inputs."""
    random = np.random.default_rng(0)
    weight = random.integers(-127, 128, (40, 64)).astype(np.float32)
    weight[:, 0] = 127
    x = (random.standard_normal((6, 64)) * 10.0 ** np.arange(-3, 3)[:, None]).astype(np.float32)
    error = np.abs(Product(weight, Outliers(NONE.columns, rest_is_even=False))(x) - x @ weight.T)
    level = np.abs(x).max(axis=1, keepdims=True) / 127
    bound = level / 508 * np.abs(weight).sum(axis=1)
    assert (error <= bound * 1.02).all()
    assert np.abs(product(x, weight) - x @ weight.T).max() > 10 * error.max()


@pytest.mark.parametrize("rest_is_even", [True, False])
@pytest.mark.parametrize("num_outliers", [0, 1, 16])
def test_a_row_is_the_same_alone_and_among_any_number(
    num_outliers: int, rest_is_even: bool
) -> None:
    """This rests on ONNX Runtime's kernels for the processor at hand, which is why it is here."""
    random = np.random.default_rng(0)
    for out_dim, in_dim in ((96, 576), (37, 80), (300, 256)):
        outliers = Outliers(random.permutation(in_dim)[:num_outliers], rest_is_even)
        multiply = Product(random.standard_normal((out_dim, in_dim)).astype(np.float32), outliers)
        x = random.standard_normal((65, in_dim)).astype(np.float32)
        alone = np.concatenate([multiply(row[None]) for row in x])
        for count in (2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65):
            assert np.array_equal(multiply(x[:count]), alone[:count]), (out_dim, in_dim, count)
