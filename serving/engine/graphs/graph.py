"""Describes a loaded graph as the engine sees it: something to bind arrays to and to run."""

from collections.abc import Callable
from dataclasses import dataclass
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
    select: chooses next tokens on the device that the memory is of; None where the host does.
    """

    step: Graph
    encode: Graph | None
    memory: Memory
    attention: Callable[[], Graph] | None = None
    select: Graph | None = None
