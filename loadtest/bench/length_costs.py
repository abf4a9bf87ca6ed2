"""Describes what a token costs at each length: operations, bytes read, and time.

A model reads its source, or prompt, and then writes token by token. For each it is told what one
more token costs when N are there: a flat line is a recurrent net's, one that rises with N is
attention's. From two lengths follow the two terms, and with them the line of table 1 of Vaswani et
al. 2017 that the model belongs to.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from onnx import GraphProto, NodeProto, TensorProto

from loadtest.bench.length_probe import GATES, Probe, ProbeRun
from serving.bundle.manifest import LENGTH, SOURCE, Manifest, StateKind, StateSpec
from serving.bundle.opening import Bundle
from serving.engine.arrays import storage_type

SEQUENTIAL = frozenset({*GATES, "Loop", "Scan"})
NEGLIGIBLE = 0.005  # of a token's operations: lengths are looked at here and there


class Way(enum.StrEnum):
    """A way to read a sequence (Vaswani et al. 2017, table 1)."""

    ATTENTION = "self-attention"
    RECURRENCE = "recurrence"
    CONVOLUTION = "convolution"


@dataclass(frozen=True)
class Phase:
    """The cost of reading, or of writing.

    operations: floating-point operations per token of one row.
    seconds: per token of all rows together.
    in_turn: whether tokens are read one after another in a loop.
    """

    operations: float
    seconds: float
    in_turn: bool


@dataclass(frozen=True)
class Point:
    """The cost of a model at one length.

    read: None if the model reads nothing at once.
    write: None if the model writes nothing.
    state_bytes: bytes of the states of a request of this length.
    touched_bytes: bytes of states that are read and written for one token.
    """

    length: int
    read: Phase | None
    write: Phase | None
    state_bytes: int
    touched_bytes: int


@dataclass(frozen=True)
class LengthCosts:
    """A bundle's costs, by rising lengths.

    weight_bytes: what one step multiplies by, whatever the length, once for all rows.
    reads_by: how its layers read a sequence.
    """

    name: str
    architecture: str
    rows: int
    weight_bytes: int
    reads_by: Way
    points: Sequence[Point]


def length_costs(
    bundle: Bundle,
    lengths: Sequence[int],
    rows: int,
    threads: int,
    tell: Callable[[], object] = lambda: None,
) -> LengthCosts:
    """Measure a bundle at each length, `rows` rows at a time.

    tell: called when a length is done.
    """
    probe, manifest = Probe(bundle, rows, threads), bundle.manifest
    points = []
    for length in lengths:
        points.append(_point(probe, manifest, length, rows))
        tell()
    step = "step" in manifest.graphs
    weights = cost_of(bundle.graph_path("step" if step else "encode")).weight_bytes
    return LengthCosts(manifest.name, manifest.architecture, rows, weights, way_of(points), points)


def lengths_of(manifest: Manifest, longest: int) -> list[int]:
    """Powers of two from 16 as far as the model goes."""
    limits = manifest.limits
    target = limits.max_target_tokens - 1 if "step" in manifest.graphs else longest
    most = min(longest, target, limits.max_source_tokens or longest)
    return [length for length in (2**power for power in range(4, 31)) if length <= most] or [most]


def _reading(manifest: Manifest, length: int) -> ProbeRun | None:
    """Read a whole source, or a whole prompt where one step takes many tokens."""
    if "encode" in manifest.graphs:
        return ProbeRun("encode", length, length, 0)
    ids = next(tensor for tensor in manifest.graphs["step"].inputs if tensor.name == "ids")
    return ProbeRun("step", 0, length, 0) if isinstance(ids.shape[-1], str) else None


def _writing(manifest: Manifest, length: int) -> ProbeRun | None:
    """Write a token after as many, of a source of as many."""
    return ProbeRun("step", length, 1, length) if "step" in manifest.graphs else None


def _point(probe: Probe, manifest: Manifest, length: int, rows: int) -> Point:
    reading, writing = (work(manifest, length) for work in (_reading, _writing))
    return Point(
        length,
        _phase(probe, reading, rows) if reading else None,
        _phase(probe, writing, rows) if writing else None,
        _state_bytes(manifest, length),
        _touched_bytes(manifest, length),
    )


def _phase(probe: Probe, run: ProbeRun, rows: int) -> Phase:
    cost, tokens = probe.count(run), rows * run.new
    in_turn = bool(cost.operators & SEQUENTIAL)
    return Phase(cost.operations / tokens, probe.seconds(run) / tokens, in_turn)


def _state_bytes(manifest: Manifest, length: int) -> int:
    return sum(_bytes(state, length) for state in manifest.states)


def _touched_bytes(manifest: Manifest, length: int) -> int:
    """Return the bytes that writing a token reads, and again those that it overwrites."""
    twice = {StateKind.REPLACE}
    return sum((1 + (state.kind in twice)) * _bytes(state, length) for state in manifest.states)


def _bytes(state: StateSpec, length: int) -> int:
    shape = [length if axis in (SOURCE, LENGTH) else int(axis) for axis in state.shape]
    return prod(shape) * storage_type(state.dtype).itemsize


def way_of(points: Sequence[Point]) -> Way:
    """Return how layers read: with attention the cost of a token rises with the length; a layer
    that runs token by token, or keeps states of constant size, is a recurrence. A model that reads
    only by its steps is classified by how it writes.
    """
    read = points[0].read
    if read is None:
        return Way.ATTENTION if rises(points, "write") else Way.RECURRENCE
    if read.in_turn or 0 < points[0].state_bytes == points[-1].state_bytes:
        return Way.RECURRENCE
    return Way.ATTENTION if rises(points, "read") else Way.CONVOLUTION


def rises(points: Sequence[Point], phase: str) -> bool:
    """Return whether a token costs more at the longest length than at the shortest."""
    first, last = (getattr(point, phase) for point in (points[0], points[-1]))
    return bool(last.operations > first.operations * (1 + NEGLIGIBLE))


PRODUCTS = (
    *("MatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "Gemm", "FusedMatMul"),
    *("QuantizedLinear", "BlockQuantizedLinear"),
)


@dataclass(frozen=True)
class GraphCost:
    """Multiply-adds of one row, and bytes of weights that a run reads once for all rows."""

    multiply_adds: int
    weight_bytes: int


def cost_of(graph_file: Path) -> GraphCost:
    """Count the products with weights of a graph, the bodies of its loops once."""
    graph = onnx.load(graph_file, load_external_data=False).graph
    weights = {tensor.name: tensor for tensor in _tensors(graph)}
    pairs = [
        (node, weights[node.input[1]])
        for node in _nodes(graph)
        if node.op_type in PRODUCTS and len(node.input) > 1 and node.input[1] in weights
    ]
    return GraphCost(
        sum(_multiply_adds(node, weight) for node, weight in pairs),
        sum(_num_bytes(weight) for weight in {weight.name: weight for _, weight in pairs}.values()),
    )


def _multiply_adds(node: NodeProto, weight: TensorProto) -> int:
    if node.op_type == "MatMulNBits":
        sizes = {attribute.name: attribute.i for attribute in node.attribute}
        return int(sizes["K"] * sizes["N"])
    return _num_values(weight)


def _num_bytes(weight: TensorProto) -> int:
    return _num_values(weight) * onnx.helper.tensor_dtype_to_np_dtype(weight.data_type).itemsize


def _num_values(weight: TensorProto) -> int:
    count = 1
    for size in weight.dims:
        count *= size
    return count


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes(attribute.g)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
