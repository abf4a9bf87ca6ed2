"""A tape in a graph: each row reads its own past and writes at its own end, in place."""

from pathlib import Path

import numpy as np
import pytest

from export.graph.writer import Array, GraphWriter
from export.layers.basic import Layers
from export.layers.tape import Tape
from serving.bundle.manifest import LENGTH, Precision
from tests.export.sessions import session_of
from tests.tiny import RandomWeights

KEY, VALUE = 7, 20
LENGTHS = [0, 1, 19, 6, 23, 7, 15, 3]


class Graph:
    """Reads a tape, then appends to it; `score` is the weight that scores."""

    def __init__(self) -> None:
        graph, weights = GraphWriter("tape"), RandomWeights()
        tape = Tape(Layers(graph, weights, Precision.FP32), "tape", KEY, VALUE)
        tape.open(graph.input("past_lengths", "int32", ()))
        mixed, actual = tape.read(graph.input("query", "float32", (KEY,)), "score")
        graph.output("mixed", mixed, "float32", (VALUE,))
        graph.output("weights", actual, "float32", (LENGTH,))
        tape.append(
            graph.input("key", "float32", (KEY,)), graph.input("value", "float32", (VALUE,))
        )
        self.score = weights.arrays["score.weight"][0]
        self.session = session_of(graph)

    def __call__(self, rows: dict[str, Array]) -> tuple[Array, Array]:
        """Mixed values and weights; the tapes among `rows` change in place."""
        binding = self.session.io_binding()
        for name, array in rows.items():
            address = (array.dtype, array.shape, array.ctypes.data)
            binding.bind_input(name, "cpu", 0, *address)
            if name.startswith("tape"):
                binding.bind_output(f"{name}.next", "cpu", 0, *address)
        binding.bind_output("mixed")
        binding.bind_output("weights")
        self.session.run_with_iobinding(binding)
        mixed, weights = binding.copy_outputs_to_cpu()[-2:]
        return mixed, weights


def random_rows(lengths: list[int], capacity: int) -> dict[str, Array]:
    """Rows of these lengths; what lies beyond them is loud."""
    random = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"query": (KEY,), "key": (KEY,), "value": (VALUE,)}
    shapes |= {"tape_keys": (capacity, KEY), "tape_values": (capacity, VALUE)}
    rows = {
        name: random.standard_normal((len(lengths), *shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    for row, length in enumerate(lengths):
        rows["tape_keys"][row, length:] *= 1e4
        rows["tape_values"][row, length:] *= 1e4
    return rows | {"past_lengths": np.array(lengths, np.int32)}


def test_each_row_reads_its_own_past() -> None:
    graph, rows = Graph(), random_rows(LENGTHS, 24)
    expected = [read(graph, rows, row, length) for row, length in enumerate(LENGTHS)]
    mixed, weights = graph(rows)
    for row, (values, likelihoods) in enumerate(expected):
        np.testing.assert_allclose(mixed[row], values, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(weights[row, : len(likelihoods)], likelihoods, rtol=1e-5)
        assert not weights[row, len(likelihoods) :].any()


def read(graph: Graph, rows: dict[str, Array], row: int, length: int) -> tuple[Array, Array]:
    """The same by loops in float64: values mixed and their weights."""
    keys, values, query = (
        rows[n][row].astype(float) for n in ("tape_keys", "tape_values", "query")
    )
    scores = [float(graph.score @ np.tanh(keys[i] + query)) for i in range(length)]
    likelihoods = np.exp(scores) / np.exp(scores).sum()
    return sum((likelihoods[i] * values[i] for i in range(length)), np.zeros(VALUE)), likelihoods


def test_each_row_writes_at_its_own_end_and_nowhere_else() -> None:
    graph, rows = Graph(), random_rows(LENGTHS, 24)
    expected = {name: rows[name].copy() for name in ("tape_keys", "tape_values")}
    for row, length in enumerate(LENGTHS):
        expected["tape_keys"][row, length] = rows["key"][row]
        expected["tape_values"][row, length] = rows["value"][row]
    graph(rows)
    for name, array in expected.items():
        assert np.array_equal(rows[name], array)


@pytest.mark.parametrize("capacity", [24, 27, 64])
def test_rows_are_the_same_alone_and_in_company(capacity: int) -> None:
    graph, rows = Graph(), random_rows(LENGTHS, capacity)
    alone = {name: array.copy() for name, array in rows.items()}
    mixed, weights = graph(rows)
    for row, length in enumerate(LENGTHS):
        part = {name: array[row : row + 1].copy() for name, array in alone.items()}
        own_mixed, own_weights = graph(part)
        assert np.array_equal(own_mixed[0], mixed[row])
        assert np.array_equal(own_weights[0, :length], weights[row, :length])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="counts resident pages")
def test_a_step_touches_what_is_written_and_not_the_capacity() -> None:
    graph, num_rows = Graph(), 2
    rows = random_rows([5] * num_rows, 6)
    for name in ("tape_keys", "tape_values"):  # a gigabyte of zeros that nobody has touched
        rows[name] = np.zeros((num_rows, 1 << 22, rows[name].shape[-1]), np.float32)
    before = resident_bytes()
    graph(rows)
    assert resident_bytes() - before < 50e6


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
