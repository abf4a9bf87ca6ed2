"""Graphs of the N-gram RNN: parts of earlier outputs are kept until they are read."""

from export.graph.model import ExportedModel, Weights
from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.recurrent_language_model import ReadoutGraph, recurrent_language_model
from models.architectures.ngram_lm.config import NgramLMConfig
from serving.bundle.manifest import Precision, StateKind


class NgramReadoutGraph(ReadoutGraph):
    """Reads part i + 1 of the output i positions back now, and later parts later.

    The state `parts` holds parts 2.. of the last output, 3.. of the one before, down to the last
    part of the oldest.
    """

    def __init__(self, config: NgramLMConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self._num_parts, self._part_dim = config.num_parts, config.part_dim
        num_kept = sum(range(config.num_parts))
        self.parts = layers.state("parts", StateKind.REPLACE, num_kept * config.part_dim)
        self.states = (self.parts,) if num_kept else ()

    def build(self, output: Value) -> Value:
        config = self._config
        parts = self._due(output) if self.states else output
        return self._linear(parts, ["combine"], config.hidden_dim, [config.embedding_dim]).tanh()

    def _due(self, output: Value) -> Value:
        """Return the parts that are read now, [batch, hidden_dim], and keep the others."""
        graph, size = self._graph, self._part_dim
        joined = graph.op.Concat(output, graph.state_input(self.parts), axis=-1)
        sizes = [n for later in range(self._num_parts - 1, 0, -1) for n in (1, later)]
        pieces = graph.split(joined, [size * n for n in (*sizes, 1)])
        graph.next_state(self.parts, graph.op.Concat(*pieces[1::2], axis=-1))
        return graph.op.Concat(*pieces[0::2], axis=-1)


def build(config: NgramLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return recurrent_language_model(config, weights, precision, NgramReadoutGraph)
