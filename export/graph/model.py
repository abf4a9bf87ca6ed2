"""Holds what a family's builder returns: its graphs and states, before they are written to a
folder.
"""

from dataclasses import dataclass

from export.graph.writer import GraphWriter
from serving.bundle.manifest import Limits, StateSpec


@dataclass(frozen=True)
class ExportedModel:
    graphs: tuple[GraphWriter, ...]  # step, where there is a source encode, step_attention ...
    states: tuple[StateSpec, ...]
    limits: Limits
    alignment_heads: tuple[int, ...] = ()

    @property
    def window(self) -> int:
        """Tell how many of the best tokens the step graph returns; 0 without one."""
        outputs = (output for graph in self.graphs for output in graph.spec("").outputs)
        return next((int(spec.shape[-1]) for spec in outputs if spec.name == "top_ids"), 0)
