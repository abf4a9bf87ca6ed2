"""Takes words in and out of every family: embeddings and the output layer, one table where they are
tied.
"""

from export.graph.choice import filled_up
from export.graph.value import Value
from export.layers.basic import Layers
from export.layers.shortlist import Shortlist
from models.configs.base import HasWords, LanguageModelConfig, TranslationModelConfig
from models.configs.recurrent import RecurrentConfig, RecurrentLanguageModelConfig
from serving.bundle.manifest import BATCH


class VocabularyGraph:
    """Reads the tables of one model in one graph.

    dims: of embeddings and of what the output layer reads. scale: of embeddings. bias: the output
    layer's, by its name, if it has any. num_source_words: None where it is the target's number.
    """

    def __init__(
        self,
        layers: Layers,
        config: HasWords,
        dims: tuple[int, int],
        *,
        scale: float = 1.0,
        bias: str | None = "output_bias",
        num_source_words: int | None = None,
    ) -> None:
        self._layers, self._config, self._scale, self._bias = layers, config, scale, bias
        self._embedding_dim, self._readout_dim = dims
        self._num_source_words = num_source_words or config.vocab_size

    def embed_source(self, ids: Value) -> Value:
        """Embed ids [...] of the source: [..., embedding_dim]."""
        return self._embed(ids, "source_embedding", self._num_source_words)

    def embed(self, ids: Value) -> Value:
        """Embed ids [...] of the language that is written: [..., embedding_dim]."""
        is_only_one = isinstance(self._config, LanguageModelConfig)
        untied = "embedding" if is_only_one else "target_embedding"
        return self._embed(ids, untied, self._config.vocab_size)

    def embed_token(self, ids: Value) -> Value:
        """Embed one token of every row, [batch, 1] ids: [batch, embedding_dim]."""
        return self.embed(ids).squeeze(1)

    def choose(self, readout: Value, cap: float | None = None, rows: str = BATCH) -> None:
        """Write the step graph's outputs, from readouts [rows, readout_dim]. cap: what logits are
        squeezed into -cap..cap by, if they are (Gemma Team 2024, 2).
        """
        config, layers, size = self._config, self._layers, self._config.vocab_size
        name = self._table("output")
        weight = layers.weights.take(f"{name}.weight", size, self._readout_dim)
        bias = layers.weights.take(self._bias, size) if self._bias else None
        channels = layers.weights.channels([f"{name}.weight"], [size])
        if isinstance(config, TranslationModelConfig) and config.shortlist:
            Shortlist(layers, size).choose(readout, name, weight, bias, channels)
            return
        if layers.quantiser is not None and channels is None:
            weight, bias = filled_up(weight, bias)
        logits = layers.score(readout, name, weight, bias, channels)
        if cap is not None:
            logits = (logits / cap).tanh() * cap
        layers.choose(logits, size, len(weight), rows=rows)

    def _embed(self, ids: Value, untied: str, num_words: int) -> Value:
        name = self._table(untied)
        return self._layers.embed(ids, name, num_words, self._embedding_dim, self._scale)

    def _table(self, untied: str) -> str:
        return "embedding" if self._config.tied_embeddings else untied


def recurrent_vocabulary(
    layers: Layers, config: RecurrentConfig | RecurrentLanguageModelConfig
) -> VocabularyGraph:
    """Build that of a recurrent network; a language model reads out as it embeds."""
    dim, scale = config.embedding_dim, config.scale_of_embeddings
    if isinstance(config, RecurrentLanguageModelConfig):
        return VocabularyGraph(layers, config, (dim, dim), scale=scale)
    num_source_words, dims = config.source_vocabulary, (dim, config.readout_dim)
    return VocabularyGraph(layers, config, dims, scale=scale, num_source_words=num_source_words)
