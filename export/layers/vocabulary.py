"""Words in and words out of families whose output has a bias (`models.layers.vocabulary`)."""

from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.shortlist import choose_tokens
from models.configs.language_models.recurrent_lm import RecurrentLanguageModelConfig
from models.configs.recurrent import RecurrentConfig
from models.configs.translators.convs2s import ConvS2SConfig

Config = RecurrentConfig | ConvS2SConfig | RecurrentLanguageModelConfig


class Vocabulary:
    """Embeddings of both sides and the output layer, one table where they are tied."""

    def __init__(self, config: RecurrentConfig, layers: Layers) -> None:
        self._config, self._layers = config, layers

    def embed_source(self, ids: Value) -> Value:
        """[...] ids -> [..., embedding_dim]."""
        return self._embed(ids, "source_embedding", self._config.source_vocabulary)

    def embed_token(self, ids: Value) -> Value:
        """One token of every row, [batch, 1] ids -> [batch, embedding_dim]."""
        graph = self._layers.graph
        embedded = self._embed(ids, "target_embedding", self._config.vocab_size)
        return graph.op.Squeeze(embedded, graph.ints(1))

    def choose(self, readout: Value) -> None:
        """The step graph's outputs, from readouts [batch, readout_dim]."""
        choose(self._layers, self._config, readout, self._config.readout_dim)

    def _embed(self, ids: Value, untied: str, num_words: int) -> Value:
        name = "embedding" if self._config.tied_embeddings else untied
        config = self._config
        scale = config.scale_of_embeddings
        return self._layers.embed(ids, name, num_words, config.embedding_dim, scale)


def choose(layers: Layers, config: Config, readout: Value, dim: int) -> None:
    """The step graph's outputs, from readouts [batch, dim]."""
    name = "embedding" if config.tied_embeddings else "output"
    weight = layers.weights.take(f"{name}.weight", config.vocab_size, dim)
    bias = layers.weights.take("output_bias", config.vocab_size)
    choose_tokens(layers, config, readout, name, weight, bias)
