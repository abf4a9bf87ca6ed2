"""Values with operators compute what numpy computes, in the type that they tell of."""

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from export.graph.writer import GraphWriter, Value
from tests.export.sessions import session_of

X = np.random.default_rng(0).uniform(0.5, 2, (2, 4, 3)).astype(np.float32)
Y = np.random.default_rng(1).uniform(0.5, 2, (2, 4, 3)).astype(np.float32)


def computed(graph: GraphWriter, value: Value, shape: tuple[int, ...]) -> np.ndarray:
    graph.output("found", value, value.dtype, shape)
    actual: np.ndarray = session_of(graph).run(None, {"x": X, "y": Y})[0]
    return actual


def inputs() -> tuple[GraphWriter, Value, Value]:
    graph = GraphWriter("values")
    return graph, graph.input("x", "float32", (4, 3)), graph.input("y", "float32", (4, 3))


def test_an_equation_reads_as_in_numpy() -> None:
    graph, x, y = inputs()
    actual = computed(graph, (x - y) * x / 2 + y.tanh() * 0.5, (4, 3))
    np.testing.assert_allclose(actual, (X - Y) * X / 2 + np.tanh(Y) * 0.5, rtol=1e-5, atol=1e-6)


def test_axes_come_and_go() -> None:
    graph, x, y = inputs()
    product = x @ y.transpose(0, 2, 1)  # [batch, 4, 4]
    actual = computed(graph, product.sum(-1).unsqueeze(1).max(-1, keepdims=True).squeeze(1), (1,))
    expected = (X @ Y.transpose(0, 2, 1)).sum(-1).max(-1, keepdims=True)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_cuts_are_those_of_numpy() -> None:
    graph, x, y = inputs()
    end = graph.ints(3)
    cuts = [x[:, 1:3, :2], x[:, 1:, 1:], x[:, :end], (x * y)[:, 2], x[:, :, graph.ints(2, 0)]]
    expected = [X[:, 1:3, :2], X[:, 1:, 1:], X[:, :3], (X * Y)[:, 2], X[:, :, [2, 0]]]
    for i, (cut, array) in enumerate(zip(cuts, expected, strict=True)):
        graph.output(str(i), cut, "float32", array.shape[1:])
    for actual, array in zip(session_of(graph).run(None, {"x": X, "y": Y}), expected, strict=True):
        np.testing.assert_array_equal(actual, array)


def test_comparisons_choose() -> None:
    graph, x, y = inputs()
    is_both = (x > 1) & (y <= x)
    assert is_both.dtype == "bool"
    actual = computed(graph, x.where(is_both, 0).maximum(y).minimum(1.5), (4, 3))
    expected = np.minimum(np.maximum(np.where((X > 1) & (Y <= X), X, 0), Y), np.float32(1.5))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_numbers_become_constants_of_the_type(dtype: str) -> None:
    _, x, _ = inputs()
    total = x.cast(dtype) + 3
    node = total.bare.producer()
    assert node is not None
    assert node.inputs[1] is not None
    assert total.dtype == dtype
    assert node.inputs[1].dtype == ir.DataType.from_numpy(
        np.dtype(getattr(ml_dtypes, dtype, dtype))
    )


def test_what_has_the_type_is_not_cast() -> None:
    _, x, _ = inputs()
    assert x.cast("float32") is x


def test_outputs_of_other_types_are_told() -> None:
    graph, x, _ = inputs()
    top, places = graph.op.TopK(x, graph.ints(1), axis=-1, _outputs=2)
    assert (top.dtype, places.dtype, x.length(1).dtype) == ("float32", "int64", "int64")


def test_an_output_of_another_type_is_refused() -> None:
    graph, x, _ = inputs()
    with pytest.raises(AssertionError, match="y is float32, not float16"):
        graph.output("y", x, "float16", (4, 3))


def test_a_value_is_no_sequence() -> None:
    with pytest.raises(TypeError):
        list(inputs()[1])  # type: ignore[call-overload]
