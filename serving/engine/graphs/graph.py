"""Describes a loaded graph as the engine sees it: something to bind arrays to and to run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

from serving.arrays import Array
from serving.engine.states.memory import Memory

Run = Callable[[], None]


class Graph(Protocol):
    def bind(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> Run:
        """Return a call that runs the graph, in place, on what these arrays hold at that time."""


@dataclass(frozen=True)
class Graphs:
    """Holds a bundle's graphs, loaded, and the memory that their states live in.

    attention: loads the step graph that also gives attention; None where there is none.
    """

    step: Graph
    encode: Graph | None
    memory: Memory
    attention: Callable[[], Graph] | None = None


def sharing_attention(graphs: Graphs) -> Graphs:
    """Return graphs for engines on several threads: the graph that gives attention is loaded by the
    first that asks for it, for all of them.
    """
    load = graphs.attention
    if load is None:
        return graphs
    once, lock = cache(load), threading.Lock()

    def load_once() -> Graph:
        with lock:
            return once()

    return replace(graphs, attention=load_once)
