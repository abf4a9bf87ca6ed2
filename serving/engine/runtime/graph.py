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
Location = tuple[str, int, object, tuple[int, ...], int]  # ONNX Runtime's arguments


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
    grid: the shapes in which the step graph runs.
    recording: the step graph again, if its runs can be recorded.
    max_rows: maximum number of rows in the memory; None if there is no such limit.
    can_prefill: whether the step graph may read several tokens of one row in a run: without native
        kernels, cross-attention on a CPU reads one.
    """

    step: Graph
    encode: Graph | None
    memory: Memory
    attention: Callable[[], Graph] | None = None
    grid: Grid = EXACT
    recording: RecordingGraph | None = None
    max_rows: int | None = None
    select: Graph | None = None
    encode_attention: Callable[[], Graph] | None = None
    lent_threads: "LentThreads | None" = None
    can_prefill: bool = True


@dataclass
class LentThreads:
    """The threads that an engine is lent while few others of its model have work.

    threads: of an engine while nothing is lent to it. lone_threads: while they are.
    most_engines: number of engines that can have as many threads at once.
    are_lent: whether the engine's next steps use them.
    """

    threads: int
    lone_threads: int
    most_engines: int
    are_lent: bool = False

    @property
    def current_threads(self) -> int:
        return self.lone_threads if self.are_lent else self.threads


class _NoStep:
    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        raise AssertionError("a bundle that only encodes is asked for a step")


NO_STEP: Graph = _NoStep()


def share_attention_graphs(graphs: Graphs) -> Graphs:
    """Return graphs for engines on several threads: the first engine that needs a graph with
    attention loads it for all.
    """
    return replace(
        graphs,
        attention=_load_once(graphs.attention),
        encode_attention=_load_once(graphs.encode_attention),
    )


def lend_threads(graphs: Graphs, lone_graphs: Graphs, lent_threads: LentThreads) -> Graphs:
    """Return graphs for one engine that run with more threads while these are lent to it. The
    outputs are the same.
    """

    def choose(graph: Graph | None, lone_graph: Graph | None) -> Graph | None:
        if graph is None or lone_graph is None:
            return graph
        return _GraphOfTwoSessions(graph, lone_graph, lent_threads)

    step = choose(graphs.step, lone_graphs.step)
    assert step is not None
    return replace(
        graphs,
        step=step,
        encode=choose(graphs.encode, lone_graphs.encode),
        lent_threads=lent_threads,
    )


class _GraphOfTwoSessions:
    """A graph that is loaded twice, with an engine's own threads and with more."""

    def __init__(self, graph: Graph, lone_graph: Graph, lent_threads: LentThreads) -> None:
        self._graph, self._lone_graph, self._lent_threads = graph, lone_graph, lent_threads

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        lent_threads = self._lent_threads
        run, run_alone = (graph.bind(inputs, outputs) for graph in (self._graph, self._lone_graph))

        def run_with_current_threads() -> None:
            if lent_threads.are_lent:
                run_alone()
            else:
                run()

        return run_with_current_threads


def _load_once(load: Callable[[], Graph] | None) -> Callable[[], Graph] | None:
    if load is None:
        return None
    cached_load, lock = cache(load), threading.Lock()

    def load_or_wait() -> Graph:
        with lock:  # engines on several threads may ask at once, and `cache` would load twice
            return cached_load()

    return load_or_wait


class OrtGraph:
    """An ONNX Runtime session. Each binding stores addresses; the caller must keep the arrays
    alive.
    """

    def __init__(self, session: Any) -> None:
        self._session = session

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        binding = self._session.io_binding()
        for name, array in inputs.items():
            binding.bind_input(name, *memory_location(array, "cpu"))
        for name, array in outputs.items():
            binding.bind_output(name, *memory_location(array, "cpu"))
        run = self._session.run_with_iobinding
        arrays = (inputs, outputs)  # kept alive by the function: a binding only has addresses

        def run_bound(_: object = arrays) -> None:
            run(binding)

        return run_bound


def memory_location(array: Array, device: str, element_type: object = None) -> Location:
    """Return ONNX Runtime's arguments for memory of a device, "cpu" or "cuda".

    element_type: if it is not the array's own.
    """
    assert array.flags.c_contiguous
    address = array.__array_interface__["data"][0]
    return device, 0, element_type or array.dtype.type, array.shape, address
