"""Recurrent cells and attention to states of the native kernels, against ONNX Runtime's nodes."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from export.graph.cell_functions import GRU_CELL, GRU_RESET, GRU_UPDATE, LSTM_CELL, SSRU_CELL
from serving.kernels.library import native_kernels
from tests.serving.kernels.models import FLOAT, Array, model_of, native, portable
from tests.serving.kernels.operators import run_nodes

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

DIMS, ROWS = [3, 7, 16, 40, 1000], [1, 3, 130]
# The function, the number of blocks of each of its inputs, and its outputs.
CELLS: dict[str, tuple[str, dict[str, int], list[str]]] = {
    "gru": (GRU_CELL, {"x": 3, "u": 3, "hidden": 1}, ["next"]),
    "reset": (GRU_RESET, {"x": 3, "u": 2, "hidden": 1}, ["recurrent"]),
    "update": (GRU_UPDATE, {"x": 3, "u": 2, "u_new": 1, "hidden": 1}, ["next"]),
    "lstm": (LSTM_CELL, {"x": 4, "u": 4, "memory": 1}, ["hidden", "next_memory"]),
    "ssru": (SSRU_CELL, {"gates": 2, "memory": 1}, ["out", "next_memory"]),
}


def cell_inputs(cell: str, rows: int, dim: int) -> dict[str, Array]:
    _, blocks, _ = CELLS[cell]
    random = np.random.default_rng(rows + dim)
    feeds = {
        name: (random.standard_normal((rows, number * dim)) * 3).astype(np.float32)
        for name, number in blocks.items()
    }
    next(iter(feeds.values()))[0, :3] = 40, -40, 0
    return feeds


def model(cell: str) -> bytes:
    text, blocks, outputs = CELLS[cell]
    sizes: list[Any] = [None, None]
    return model_of(
        text, [(name, FLOAT, sizes) for name in blocks], [(name, FLOAT, sizes) for name in outputs]
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_the_bits_of_the_operators(cell: str, rows: int, threads: int) -> None:
    fast, plain = native(model(cell), threads), portable(model(cell))
    for dim in DIMS:
        feeds = cell_inputs(cell, rows, dim)
        for actual, expected in zip(fast(feeds), plain(feeds), strict=True):
            assert np.array_equal(actual, expected), dim


@pytest.mark.parametrize("cell", CELLS)
def test_a_row_of_a_cell_has_the_same_bits_alone(cell: str) -> None:
    feeds, run = cell_inputs(cell, 130, 40), native(model(cell), threads=2)
    together = run(feeds)
    for row in (0, 7, 129):
        alone = run({name: each[row : row + 1] for name, each in feeds.items()})
        for one, all_rows in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_rows[row])


@pytest.mark.parametrize("cell", CELLS)
def test_inputs_that_do_not_fit_a_cell_are_errors(cell: str) -> None:
    feeds, run = cell_inputs(cell, 4, 16), native(model(cell))
    for name in feeds:
        for wrong in (feeds[name][:3], feeds[name][:, :-1]):
            with pytest.raises(Exception, match="do not fit its state"):
                run({**feeds, name: np.ascontiguousarray(wrong)})


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_without_rows(cell: str) -> None:
    feeds = {name: each[:0] for name, each in cell_inputs(cell, 1, 16).items()}
    assert all(each.shape == (0, 16) for each in native(model(cell))(feeds))


def memory_inputs(rows: int, source: int, key_dim: int, value_dim: int) -> dict[str, Array]:
    random = np.random.default_rng(rows + key_dim)
    shapes = {
        "query": (rows, key_dim),
        "keys": (rows, source, key_dim),
        "values": (rows, source, value_dim),
    }
    feeds = {name: random.standard_normal(each).astype(np.float32) for name, each in shapes.items()}
    lengths = random.integers(0, source + 1, rows).astype(np.int32)
    lengths[:1] = source
    lengths[1:2] = 0
    score_weight = random.standard_normal(key_dim).astype(np.float32)
    return {**feeds, "lengths": lengths, "score_weight": score_weight}


def attend(kind: str, feeds: dict[str, Array], threads: int = 1) -> list[Array]:
    feeds = dict(feeds)
    if kind == "DotAttention":
        del feeds["score_weight"]
    outputs = ["weights", "context"]
    node = helper.make_node(kind, list(feeds), outputs, domain="attendant", scale=0.5)
    return run_nodes([node], feeds, outputs, threads)


def plain_attend(kind: str, feeds: dict[str, Array]) -> tuple[Array, Array]:
    """Attend in double precision, row by row."""
    rows, source, _ = feeds["keys"].shape
    weights, context = np.zeros((rows, source)), np.zeros((rows, feeds["values"].shape[2]))
    for row, length in enumerate(feeds["lengths"]):
        if length == 0:
            continue
        query, keys = feeds["query"][row].astype(np.float64), feeds["keys"][row, :length]
        additive = np.tanh(query + keys) @ feeds["score_weight"]
        scores = 0.5 * (additive if kind == "AdditiveAttention" else keys @ query)
        exponentials = np.exp(scores - scores.max())
        weights[row, :length] = exponentials / exponentials.sum()
        context[row] = weights[row, :length] @ feeds["values"][row, :length]
    return weights, context


ATTENTIONS = ["AdditiveAttention", "DotAttention"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", [(1, 5, 7, 3), (2, 24, 1000, 2000), (130, 17, 40, 130)])
@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_to_states_is_near_a_plain_loop(
    kind: str, sizes: tuple[int, int, int, int], threads: int
) -> None:
    feeds = memory_inputs(*sizes)
    for actual, plain in zip(attend(kind, feeds, threads), plain_attend(kind, feeds), strict=True):
        assert np.abs(actual - plain).max() < 2e-5  # scores are sums of up to 1,000 products


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_attention_to_states_is_the_same_alone_and_without_padding(kind: str) -> None:
    feeds = memory_inputs(130, 37, 40, 70)
    together = attend(kind, feeds, threads=2)
    for row in (0, 1, 50, 129):
        length = feeds["lengths"][row]
        alone = {name: each[row : row + 1] for name, each in feeds.items()}
        alone["score_weight"] = feeds["score_weight"]
        for name in ("keys", "values"):
            alone[name] = np.ascontiguousarray(alone[name][:, :length])
        weights, context = attend(kind, alone)
        assert np.array_equal(weights[0], together[0][row, :length])
        assert np.array_equal(context[0], together[1][row])
        assert not together[0][row, length:].any()


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_wrong_memories_are_errors(kind: str) -> None:
    feeds = memory_inputs(3, 5, 16, 24)
    for name in ("query", "keys", "values", "lengths"):
        with pytest.raises(Exception, match="wrong shapes"):
            attend(kind, {**feeds, name: np.ascontiguousarray(feeds[name][:2])})
    for length in (-1, 6):
        with pytest.raises(Exception, match="exceeds the source"):
            attend(kind, {**feeds, "lengths": np.full(3, length, np.int32)})
