"""Builds the N-gram RNN: parts of earlier outputs are kept until their turn has come."""

from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.layers.basic import Layers
from export.layers.recurrent_language import recurrent_language_model
from models.architectures.ngram_lm.config import NgramLMConfig
from serving.bundle.manifest import Precision, StateKind, StateSpec


def build(config: NgramLMConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return recurrent_language_model(config, weights, precision, NgramReadout)


class NgramReadout:
    """Reads part i + 1 of the output i positions back now, and later parts later: the state `parts`
    holds parts 2.. of the last output, 3.. of the one before, down to the last part of the oldest.
    """

    telling = None

    def __init__(self, config: NgramLMConfig, layers: Layers) -> None:
        self._config, self._layers = config, layers
        num_kept = sum(range(config.num_parts))
        self.parts = layers.state("parts", StateKind.REPLACE, num_kept * config.part_dim)
        self.states: tuple[StateSpec, ...] = (self.parts,) if num_kept else ()

    def build(self, output: Value) -> Value:
        config = self._config
        parts = self._turn(output) if self.states else output
        dims = config.hidden_dim, [config.embedding_dim]
        return self._layers.linear(parts, ["readout.combine"], *dims, bias=False).tanh()

    def _turn(self, output: Value) -> Value:
        """Give the parts whose turn it is, [batch, hidden_dim]; the others are kept."""
        graph, size = self._layers.graph, self._config.part_dim
        joined = graph.op.Concat(output, graph.state_input(self.parts), axis=-1)
        sizes = [n for later in range(self._config.num_parts - 1, 0, -1) for n in (1, later)]
        pieces = graph.split(joined, [size * n for n in (*sizes, 1)])
        graph.next_state(self.parts, graph.op.Concat(*pieces[1::2], axis=-1))
        return graph.op.Concat(*pieces[0::2], axis=-1)
