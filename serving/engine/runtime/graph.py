"""A loaded graph as the engine sees it: something to bind arrays to and to run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol

from serving.arrays import Array
from serving.engine.states.memory import Memory
from serving.engine.states.store import EXACT, Grid

Run = Callable[[], None]


class Graph(Protocol):
    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Return a call that runs the graph, in place, on what these arrays hold at that time."""


class RecordingGraph(Graph, Protocol):
    def record(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Bind, run once and keep what the device was told: the call tells it all of that again, at
        once. For the thread alone that records.
        """


@dataclass(frozen=True)
class Graphs:
    """Holds a bundle's graphs, loaded, and the memory that their states live in.

    step: NO_STEP of a bundle that only encodes.
    attention: loads the step graph that also gives attention; None where there is none.
    encode_attention: likewise the encode graph.
    select: chooses next tokens on the device that the memory is of; None where the host does.
    verify: scores several next tokens of a row at once; None where nobody asks for it.
    grid: the shapes that the step graph runs in.
    recording: the step graph again, where its runs can be recorded.
    max_rows: that the memory has room for; None where that is no question.
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
    """Return graphs for engines on several threads: those that give attention are loaded by the
    first that asks for them, for all.
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
    """Wraps one session. Each binding keeps addresses; whoever binds keeps the arrays alive."""

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
    """Return what ONNX Runtime wants to know of memory in a place, "cpu" or "cuda".

    element_type: where it is not the array's own.
    """
    assert array.flags.c_contiguous
    address = array.__array_interface__["data"][0]
    return place, 0, element_type or array.dtype.type, array.shape, address
