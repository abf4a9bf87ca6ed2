"""The interface of a loaded graph: it is bound to arrays and run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from serving.engine.arrays import Array
from serving.engine.states.memory import Memory
from serving.engine.states.store import EXACT, Grid

Run = Callable[[], None]


class Graph(Protocol):
    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Return a function that runs the graph on the current contents of these arrays."""


class RecordingGraph(Graph, Protocol):
    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Bind, run once and record the launches; the returned function replays them. Only for the
        thread that records.
        """


@dataclass(frozen=True)
class Graphs:
    """The loaded graphs of a bundle, and the memory of their states.

    step: NO_STEP for a bundle that only encodes.
    attention: loads the step graph with attention outputs; None if there is none.
    encode_attention: the same for the encode graph.
    select: chooses next tokens on the device of the memory; None if the host chooses.
    verify: scores several next tokens of a row in one run; None if it is not needed.
    grid: the shapes in which the step graph runs.
    recording: the step graph again, if its runs can be recorded.
    max_rows: maximum number of rows in the memory; None if there is no such limit.
    """

    step: Graph
    encode: Graph | None
    memory: Memory
    attention: Callable[[], Graph] | None = None
    grid: Grid = EXACT
    recording: RecordingGraph | None = None
    max_rows: int | None = None
    select: Graph | None = None
    verify: Graph | None = None
    encode_attention: Callable[[], Graph] | None = None


class _NoStep:
    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        raise AssertionError("a bundle that only encodes is asked for a step")


NO_STEP: Graph = _NoStep()


def sharing_attention(graphs: Graphs) -> Graphs:
    """Return graphs for engines on several threads: the first engine that needs a graph with
    attention loads it for all.
    """
    return replace(
        graphs,
        attention=_shared(graphs.attention),
        encode_attention=_shared(graphs.encode_attention),
    )


def _shared(load: Callable[[], Graph] | None) -> Callable[[], Graph] | None:
    if load is None:
        return None
    once, lock = cache(load), threading.Lock()

    def load_once() -> Graph:
        with lock:
            return once()

    return load_once


Location = tuple[str, int, object, tuple[int, ...], int]


class OrtGraph:
    """An ONNX Runtime session. Each binding stores addresses; the caller must keep the arrays
    alive.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *location(array, "cpu"))
        for name, array in outputs.items():
            binding.bind_output(name, *location(array, "cpu"))
        run = self._session.run_with_iobinding
        keep = (inputs, outputs)

        def run_bound(keep: object = keep) -> None:
            run(binding)

        return run_bound


def location(array: Array, place: str, element_type: object = None) -> Location:
    """Return ONNX Runtime's arguments for memory in a place, "cpu" or "cuda".

    element_type: if it is not the array's own.
    """
    assert array.flags.c_contiguous
    address = array.__array_interface__["data"][0]
    return place, 0, element_type or array.dtype.type, array.shape, address
