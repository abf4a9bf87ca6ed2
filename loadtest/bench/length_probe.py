"""Run the graphs of a bundle at one length; count their operations and measure their time."""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from serving.bundle.manifest import (
    BATCH,
    CANDIDATES,
    LENGTH,
    SOURCE,
    UNION,
    WANTS_LOGP,
    StateKind,
    TensorSpec,
)
from serving.bundle.opening import Bundle
from serving.engine.arrays import Array
from serving.engine.config import EngineConfig
from serving.engine.runtime.graph import OrtGraph
from serving.engine.runtime.session import open_session

MIN_RUNS = 5


MIN_SECONDS = 0.2


@dataclass(frozen=True)
class ProbeRun:
    """One run of a graph.

    new: tokens of each row that it reads. past: positions that its states hold before.
    """

    graph: str
    source: int
    new: int
    past: int


@dataclass(frozen=True)
class FoundCosts:
    """The floating-point operations of a run, and the operators it ran."""

    operations: int
    operators: frozenset[str]


Shape = Sequence[int]


class Probe:
    """Opens the graphs of a bundle as they are served, on `threads` threads, with `rows` rows."""

    def __init__(self, bundle: Bundle, rows: int, threads: int) -> None:
        self._bundle, self._manifest, self._rows = bundle, bundle.manifest, rows
        self._config = EngineConfig(threads=threads)
        self._timed: dict[str, OrtGraph] = {}

    def count(self, run: ProbeRun) -> FoundCosts:
        """Count what a run computes, from the shapes that its operators had."""
        with tempfile.TemporaryDirectory() as folder:
            path = self._bundle.graph_path(run.graph)
            session = open_session(path, self._config, profile=Path(folder) / "profile")
            self._bind(OrtGraph(session), run)()
            events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
        capacity = self._manifest.limits.max_target_tokens
        lengths = Lengths(capacity, run.past + run.new)
        nodes = list(_nodes(events))
        return FoundCosts(
            sum(work_of(node, lengths) for node in nodes),
            frozenset(node.operator for node in nodes),
        )

    def seconds(self, run: ProbeRun) -> float:
        """Time a run: the median of many."""
        if run.graph not in self._timed:
            session = open_session(self._bundle.graph_path(run.graph), self._config)
            self._timed[run.graph] = OrtGraph(session)
        bound = self._bind(self._timed[run.graph], run)
        bound()
        times: list[float] = []
        while len(times) < MIN_RUNS or sum(times) < MIN_SECONDS:
            started = time.perf_counter()
            bound()
            times.append(time.perf_counter() - started)
        return median(times)

    def _bind(self, graph: OrtGraph, run: ProbeRun) -> Any:
        """Bind arrays of the right shapes; states that grow are written in place, as served."""
        spec = self._manifest.graphs[run.graph]
        inputs = {tensor.name: self._input(tensor, run) for tensor in spec.inputs}
        in_place = {
            f"{state.name}.next": inputs[state.name]
            for state in self._manifest.states
            if state.kind is StateKind.APPEND and state.name in inputs
        }
        outputs = {
            tensor.name: in_place[tensor.name]
            if tensor.name in in_place
            else self._zeros(tensor, run)
            for tensor in spec.outputs
            if tensor.name != "logp"  # of all tokens, which greedy rows have no use for
        }
        return graph.bind(inputs, outputs)

    def _input(self, spec: TensorSpec, run: ProbeRun) -> Array:
        array = self._zeros(spec, run)
        values = {
            "source_lengths": run.source,
            "past_lengths": run.past,
            "total_lengths": run.past + run.new,
            "shortlist_lengths": self._manifest.vocab_size,
            WANTS_LOGP: False,
        }
        array[...] = values.get(spec.name, 0)
        return array

    def _zeros(self, spec: TensorSpec, run: ProbeRun) -> Array:
        return np.zeros(self._shape(spec.shape, run), spec.dtype)

    def _shape(self, shape: Sequence[int | str], run: ProbeRun) -> tuple[int, ...]:
        sizes = {
            BATCH: self._rows,
            SOURCE: run.source,
            LENGTH: self._manifest.limits.max_target_tokens,
            CANDIDATES: self._manifest.vocab_size,
            UNION: self._manifest.vocab_size,
        }
        return tuple(sizes.get(axis, run.new) if isinstance(axis, str) else axis for axis in shape)


@dataclass(frozen=True)
class Ran:
    """One operator as it ran.

    inputs, outputs: shapes, without inputs that are not there and weights that were repacked.
    """

    operator: str
    inputs: Sequence[Shape]
    outputs: Sequence[Shape]


def _nodes(events: list[dict[str, Any]]) -> Iterator[Ran]:
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            arguments = event["args"]
            yield Ran(
                arguments["op_name"],
                _shapes(arguments["input_type_shape"]),
                _shapes(arguments["output_type_shape"]),
            )


def _shapes(tensors: list[dict[str, list[int]]]) -> list[list[int]]:
    return [shape for record in tensors for shape in record.values()]


PRODUCTS = (
    *("MatMul", "MatMulInteger", "MatMulIntegerToFloat", "MatMulNBits", "FusedMatMul"),
    *("QuantizedLinear", "BlockQuantizedLinear"),
)


GEMMS = ("Gemm", "FusedGemm")


CONVOLUTIONS = ("Conv", "FusedConv")


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


ATTENTION = ("GroupQueryAttention", "SelfAttention", "CrossAttention", "Int8CrossAttention")


STATES_ATTENTION = ("AdditiveAttention", "DotAttention")


LOOPS = ("Loop", "Scan", "If")  # their bodies' operators are counted themselves


MOVES = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
        *("Identity", "NonZero", "Pad", "Reshape", "ReverseSequence", "ScatterElements"),
        *("ScatterND", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)


@dataclass(frozen=True)
class Lengths:
    """Lengths that shapes alone do not show.

    filled: number of positions in use, of the `capacity` of the buffers.
    """

    capacity: int
    filled: int


def work_of(ran: Ran, lengths: Lengths) -> int:
    """Count the floating-point operations of one run of an operator."""
    written = sum(map(prod, ran.outputs))
    if ran.operator in MOVES or ran.operator in LOOPS or not ran.outputs:
        return 0
    if ran.operator in PRODUCTS or ran.operator in GEMMS:
        return 2 * written * ran.inputs[0][-1]
    if ran.operator in CONVOLUTIONS:
        return 2 * written * prod(ran.inputs[1][1:])
    if ran.operator in GATES:
        return _recurrence(ran)
    if ran.operator in ATTENTION:
        return _attention(ran, lengths)
    if ran.operator == "EncoderAttention":  # over packed tokens, and the places of padded ones
        return 4 * prod(ran.outputs[0]) * ran.inputs[2][1]
    if ran.operator in STATES_ATTENTION:
        _, keys, values, *_ = ran.inputs
        return 2 * (prod(keys) + prod(values))
    return written


def _recurrence(ran: Ran) -> int:
    """Count the products of all gates with the input and with the hidden vector."""
    time, batch, inputs = ran.inputs[0]
    directions, hidden = ran.outputs[-1][0], ran.outputs[-1][-1]
    gates = GATES[ran.operator] * hidden
    return 2 * time * batch * directions * gates * (inputs + hidden)


def _attention(ran: Ran, lengths: Lengths) -> int:
    """Count the products of queries with keys, and of weights with values.

    Buffers of `capacity` positions are read as far as they are filled; others are the source's.
    """
    buffers = [shape for shape in (*ran.inputs, *ran.outputs) if len(shape) == 4]
    positions = max((shape[2] for shape in buffers), default=ran.inputs[0][1])
    if positions == lengths.capacity:
        positions = lengths.filled
    return 4 * prod(ran.outputs[0]) * positions
