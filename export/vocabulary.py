"""Words in and words out of the recurrent families (`models.layers.vocabulary`)."""

from export.graph import Value
from export.layers import Layers
from models.configs.recurrent import RecurrentConfig


class Vocabulary:
    """Embeddings of both sides and the output layer, one table where they are tied."""

    def __init__(self, config: RecurrentConfig, layers: Layers) -> None:
        self._config, self._layers = config, layers

    def embed_source(self, ids: Value) -> Value:
        """[...] ids -> [..., embedding_dim]."""
        return self._embed(ids, "source_embedding")

    def embed_token(self, ids: Value) -> Value:
        """One token of every row, [batch, 1] ids -> [batch, embedding_dim]."""
        graph = self._layers.graph
        return graph.op.Squeeze(self._embed(ids, "target_embedding"), graph.ints(1))

    def choose(self, readout: Value) -> None:
        """The step graph's outputs, from readouts [batch, readout_dim]."""
        config, take = self._config, self._layers.weights.take
        name = "embedding" if config.tied_embeddings else "output"
        weight = take(f"{name}.weight", config.vocab_size, config.readout_dim)
        bias = take("output_bias", config.vocab_size)
        self._layers.choose(self._layers.project(readout, name, weight, bias), config.vocab_size)

    def _embed(self, ids: Value, untied: str) -> Value:
        name = "embedding" if self._config.tied_embeddings else untied
        return self._layers.embed(ids, name, self._config.vocab_size, self._config.embedding_dim)
