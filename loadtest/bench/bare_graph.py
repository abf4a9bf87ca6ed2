"""Repeats what an engine has its step graph do, without the engine."""

import time

from serving.arrays import Array
from serving.engine.runtime.graph import Graph, Run


class RecordedGraph:
    """Stands in for a graph, and keeps its last run over a full batch."""

    def __init__(self, graph: Graph, num_rows: int) -> None:
        self._graph, self._num_rows = graph, num_rows
        self._last: Run | None = None

    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        run = self._graph.bind(inputs, outputs)
        if inputs["ids"].shape != (self._num_rows, 1):
            return run

        def recorded() -> None:
            self._last = run
            run()

        return recorded

    def seconds_of(self, num_runs: int) -> float:
        """Repeat the last run, over the same rows at the same lengths, and return its time."""
        assert self._last is not None, "no step had a full batch"
        started = time.perf_counter()
        for _ in range(num_runs):
            self._last()
        return time.perf_counter() - started
