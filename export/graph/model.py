"""Holds what a family's builder returns: its graphs and states, before they are written to a
folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from export.graph.writer import GraphWriter
from serving.bundle.manifest import AttentionShape, Limits, StateSpec


@dataclass(frozen=True)
class ExportedModel:
    graphs: tuple[GraphWriter, ...]  # step, where there is a source encode; what tells of both ...
    states: tuple[StateSpec, ...]
    limits: Limits
    alignment_heads: tuple[int, ...] = ()
    attention: Mapping[str, AttentionShape] = field(default_factory=dict)

    @property
    def window(self) -> int:
        """Tell how many of the best tokens the step graph returns; 0 without one."""
        outputs = (output for graph in self.graphs for output in graph.spec("").outputs)
        return next((int(spec.shape[-1]) for spec in outputs if spec.name == "top_ids"), 0)
