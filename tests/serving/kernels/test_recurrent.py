"""Recurrent cells and attention to states of the native kernels, against ONNX Runtime's nodes."""

import numpy as np
import pytest
from onnx import helper

from serving.kernels.library import native_kernels
from tests.serving.kernels.models import Array
from tests.serving.kernels.operators import run_nodes

pytestmark = pytest.mark.skipif(
    native_kernels().path is None, reason=f"native kernels: {native_kernels().description}"
)

DIMS, ROWS = [3, 7, 16, 40, 1000], [1, 3, 130]
Node = tuple[str, list[str], list[str]]

# What `models.layers.equations` becomes in a graph, with blocks already split: x0, u0, ...
GRU: list[Node] = [
    ("Add", ["x0", "u0"], ["reset_in"]),
    ("Sigmoid", ["reset_in"], ["reset"]),
    ("Add", ["x1", "u1"], ["update_in"]),
    ("Sigmoid", ["update_in"], ["update"]),
    ("Mul", ["reset", "u2"], ["recurrent"]),
    ("Add", ["x2", "recurrent"], ["new_in"]),
    ("Tanh", ["new_in"], ["new"]),
    ("Sub", ["state", "new"], ["kept"]),
    ("Mul", ["update", "kept"], ["weighted"]),
    ("Add", ["new", "weighted"], ["next"]),
]
GRU_RESET: list[Node] = [*GRU[:2], ("Mul", ["reset", "state"], ["next"])]
GRU_UPDATE: list[Node] = [*GRU[2:4], ("Add", ["x2", "u_new"], ["new_in"]), *GRU[6:]]
LSTM: list[Node] = [
    *[("Add", [f"x{i}", f"u{i}"], [f"in{i}"]) for i in range(4)],
    *[("Sigmoid", [f"in{i}"], [f"gate{i}"]) for i in (0, 1, 3)],
    ("Tanh", ["in2"], ["new"]),
    ("Mul", ["gate0", "new"], ["fresh"]),
    ("Mul", ["gate1", "state"], ["kept"]),
    ("Add", ["kept", "fresh"], ["next_state"]),
    ("Tanh", ["next_state"], ["seen"]),
    ("Mul", ["gate3", "seen"], ["next"]),
]
SSRU: list[Node] = [
    ("Sigmoid", ["x0"], ["forget"]),
    ("Sub", ["state", "x1"], ["difference"]),
    ("Mul", ["forget", "difference"], ["kept"]),
    ("Add", ["x1", "kept"], ["next_state"]),
    ("Relu", ["next_state"], ["next"]),
]
# operator, its inputs, blocks of x and of u, nodes, outputs
CELLS = {
    "GruCell": (["x", "u", "state"], 3, 3, GRU, ["next"]),
    "GruReset": (["x", "u", "state"], 3, 2, GRU_RESET, ["next"]),
    "GruUpdate": (["x", "u", "u_new", "state"], 3, 2, GRU_UPDATE, ["next"]),
    "LstmCell": (["x", "u", "state"], 4, 4, LSTM, ["next", "next_state"]),
    "SsruCell": (["x", "state"], 2, 0, SSRU, ["next", "next_state"]),
}


def cell_inputs(cell: str, rows: int, dim: int) -> dict[str, Array]:
    names, x_blocks, u_blocks, *_ = CELLS[cell]
    random = np.random.default_rng(rows + dim)
    blocks = {"x": x_blocks, "u": u_blocks}
    feeds = {
        name: (random.standard_normal((rows, blocks.get(name, 1) * dim)) * 3).astype(np.float32)
        for name in names
    }
    feeds["x"][0, :3] = 40, -40, 0
    return feeds


def step(cell: str, feeds: dict[str, Array], threads: int = 1) -> list[Array]:
    names, *_, outputs = CELLS[cell]
    return run_nodes(
        [helper.make_node(cell, names, outputs, domain="attendant")], feeds, outputs, threads
    )


def plain_step(cell: str, feeds: dict[str, Array]) -> list[Array]:
    _, x_blocks, u_blocks, nodes, outputs = CELLS[cell]
    split: dict[str, Array] = {each: feeds[each] for each in ("state", "u_new") if each in feeds}
    for name, number in (("x", x_blocks), ("u", u_blocks)):
        if name in feeds:
            parts = np.split(feeds[name], number, axis=-1)
            split |= {f"{name}{i}": np.ascontiguousarray(part) for i, part in enumerate(parts)}
    used = {each for _, inputs, _ in nodes for each in inputs}
    split = {name: value for name, value in split.items() if name in used}
    return run_nodes([helper.make_node(*node) for node in nodes], split, outputs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_has_the_bits_of_the_operators(cell: str, rows: int, threads: int) -> None:
    for dim in DIMS:
        feeds = cell_inputs(cell, rows, dim)
        for found, plain in zip(step(cell, feeds, threads), plain_step(cell, feeds), strict=True):
            assert np.array_equal(found, plain), dim


@pytest.mark.parametrize("cell", CELLS)
def test_a_row_of_a_cell_has_the_same_bits_alone(cell: str) -> None:
    feeds = cell_inputs(cell, 130, 40)
    together = step(cell, feeds, threads=2)
    for row in (0, 7, 129):
        alone = step(cell, {name: each[row : row + 1] for name, each in feeds.items()})
        for one, all_rows in zip(alone, together, strict=True):
            assert np.array_equal(one[0], all_rows[row])


@pytest.mark.parametrize("cell", CELLS)
def test_inputs_that_do_not_fit_a_cell_are_errors(cell: str) -> None:
    feeds = cell_inputs(cell, 4, 16)
    for name in feeds:
        for wrong in (feeds[name][:3], feeds[name][:, :-1], feeds[name][0]):
            with pytest.raises(Exception, match=r"do not fit its state|must be \[batch, dim\]"):
                step(cell, {**feeds, name: np.ascontiguousarray(wrong)})


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_without_rows(cell: str) -> None:
    feeds = {name: each[:0] for name, each in cell_inputs(cell, 1, 16).items()}
    assert all(each.shape == (0, 16) for each in step(cell, feeds))


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
    for found, plain in zip(attend(kind, feeds, threads), plain_attend(kind, feeds), strict=True):
        assert np.abs(found - plain).max() < 2e-5  # scores are sums of up to 1,000 products


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
