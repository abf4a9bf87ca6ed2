"""Row-wise int8: close to the float product, row by row, and exact about zeros."""

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from export.graph import GraphWriter
from export.quantise import RowQuantiser, quantise_channels


def product(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x times weight transposed, through the quantised graph."""
    graph = GraphWriter("product")
    rows = graph.input("x", "float32", (x.shape[1],))
    y = RowQuantiser(graph).linear(rows, "weight", weight)
    graph.output("y", y, "float32", (len(weight),))
    session = ort.InferenceSession(ir.to_proto(graph.model).SerializeToString())
    (result,) = session.run(None, {"x": x})
    return np.asarray(result)


def test_every_row_is_close_however_loud_the_others_are() -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((40, 64)).astype(np.float32)
    x = random.standard_normal((6, 64)).astype(np.float32) * 10.0 ** np.arange(-3, 3)[:, None]
    x = x.astype(np.float32)
    expected = x @ weight.T
    error = np.linalg.norm(product(x, weight) - expected, axis=1)
    assert (error < 0.015 * np.linalg.norm(expected, axis=1)).all()


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
