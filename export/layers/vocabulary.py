"""Embeddings and output layers, one table where they are tied, and lexical shortlists.

A shortlist (Junczys-Dowmunt et al. 2018, "Marian: Cost-effective High-Quality Neural Machine
Translation in C++", 4) scores few tokens in place of the whole vocabulary. The tokens on any row's
shortlist, `candidates`, are scored for all rows in one product; then each row picks its own. With
the real shortlists of a Bergamot model that took 0.3 ms for 32 rows, a product for each row 0.8 ms,
the whole vocabulary 0.8 ms; for 64 rows 0.8, 4.7 and 2.0. Sums of integers do not depend on what
else is summed, so rows keep their bits whatever shares the batch. In floats the whole vocabulary is
scored, as sums of floats would depend on the number of candidates.
"""

import numpy as np

from export.graph.choice import filled_up
from export.graph.matrix import Matrix
from export.graph.quantise import ZERO_POINT, ChannelScales, quantise_rows
from export.graph.writer import Array, Value
from export.layers.basic import Layers
from models.configs.base import HasWords, LanguageModelConfig, TranslationModelConfig
from models.configs.recurrent import RecurrentConfig, RecurrentLanguageModelConfig
from serving.bundle.manifest import CANDIDATES, UNION


class VocabularyGraph:
    """The embeddings and the output layer of one model in one graph.

    dims: of embeddings and of what the output layer reads. scale: of embeddings. bias: the name of
    the output layer's bias, if it has one. num_source_words: None: the target's number.
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
        """Return embeddings [..., embedding_dim] of source ids [...]."""
        return self._embed(ids, "source_embedding", self._num_source_words)

    def embed(self, ids: Value) -> Value:
        """Return embeddings [..., embedding_dim] of target ids [...]."""
        is_only_one = isinstance(self._config, LanguageModelConfig)
        untied = "embedding" if is_only_one else "target_embedding"
        return self._embed(ids, untied, self._config.vocab_size)

    def embed_token(self, ids: Value) -> Value:
        """Return embeddings [batch, embedding_dim] of one token of every row, ids [batch, 1]."""
        return self.embed(ids).squeeze(1)

    def observe(self, readout: Value) -> None:
        """Put out how large the inputs of the output layer are, given readouts [batch, tokens,
        readout_dim].
        """
        self._layers.observe(readout, self._table("output"), self._readout_dim)

    def choose(self, readout: Value, cap: float | None = None) -> None:
        """Write the step graph's outputs, given readouts [batch, readout_dim]. cap: logits are
        limited smoothly to -cap..cap (Gemma Team 2024, 2).
        """
        config, layers, size = self._config, self._layers, self._config.vocab_size
        name = self._table("output")
        weight = layers.table(name, size, self._readout_dim)
        bias = layers.weights.take(self._bias, size) if self._bias else None
        channels = layers.weights.channels([f"{name}.weight"], [size])
        if isinstance(config, TranslationModelConfig) and config.shortlist:
            ShortlistInputs(layers, size).choose(readout, name, weight, bias, channels)
            return
        if layers.quantiser is not None and channels is None:
            weight, bias = filled_up(weight, bias)
        logits = layers.score(readout, name, weight, bias, channels)
        if cap is not None:
            logits = (logits / cap).tanh() * cap
        layers.choose(logits, size, weight.shape[0])

    def _embed(self, ids: Value, untied: str, num_words: int) -> Value:
        name = self._table(untied)
        return self._layers.embed(ids, name, num_words, self._embedding_dim, self._scale)

    def _table(self, untied: str) -> str:
        return "embedding" if self._config.tied_embeddings else untied


def recurrent_vocabulary(
    layers: Layers, config: RecurrentConfig | RecurrentLanguageModelConfig
) -> VocabularyGraph:
    """Return the vocabulary of a recurrent network. A language model's readout has the embedding's
    size.
    """
    dim, scale = config.embedding_dim, config.scale_of_embeddings
    if isinstance(config, RecurrentLanguageModelConfig):
        return VocabularyGraph(layers, config, (dim, dim), scale=scale)
    num_source_words, dims = config.source_vocabulary, (dim, config.readout_dim)
    return VocabularyGraph(layers, config, dims, scale=scale, num_source_words=num_source_words)


WIDTH_STEP = 512  # engines pad shortlists to no more than the next multiple


class ShortlistInputs:
    """Declares the inputs of a step graph that only scores candidates.

    candidates [union]: token ids. shortlist [batch, candidates]: where each row's own tokens are
    among them, ascending by id. Beyond shortlist_lengths [batch] it is padding.
    """

    def __init__(self, layers: Layers, vocab_size: int) -> None:
        self._layers, self._graph, self._op = layers, layers.graph, layers.op
        self._vocab_size = vocab_size
        self._candidates = self._graph.input("candidates", "int64", (UNION,), per_row=False)
        self._places = self._graph.input("shortlist", "int64", (CANDIDATES,))
        self._lengths = self._graph.input("shortlist_lengths", "int32", ())

    def choose(
        self,
        x: Value,
        name: str,
        weight: Matrix,
        bias: Array | None,
        channels: ChannelScales | None,
    ) -> None:
        """Write the outputs, given x [batch, dim] and the output layer, weight [vocab, dim]."""
        if self._layers.quantiser is None:
            scores = self._pick_float(self._layers.score(x, name, weight, bias))
        else:
            scores = self._integer_scores(x, name, weight, channels)
            if bias is not None:
                table = self._graph.weight(f"{name}.bias", bias)
                scores = scores + self._of_candidates(table)
        nothing = self._graph.constant(-np.inf, scores.dtype)
        scores = scores.where(self._is_own(), nothing)
        self._layers.choose(scores, self._vocab_size, CANDIDATES, self._token_ids)

    def _integer_scores(
        self, x: Value, name: str, weight: Matrix, channels: ChannelScales | None
    ) -> Value:
        """Return scores [batch, candidates] without the bias."""
        graph, op = self._graph, self._op
        assert self._layers.quantiser is not None
        quantised, step = self._layers.quantiser.quantise_signed(x, channels)
        table, scale = quantise_rows(weight.read(), channels)
        rows = op.Gather(graph.weight(f"{name}.rows", table), self._candidates)  # [union, dim]
        zero = graph.constant(ZERO_POINT, "uint8")
        sums = op.MatMulInteger(rows, quantised.transpose(1, 0), zero)  # [union, batch]
        scores = self._pick_integers(sums).cast("float32") * step
        if len(np.unique(scale)) == 1:
            return scores * float(scale[0])
        return scores * self._of_candidates(graph.weight(f"{name}.row_scale", scale))

    def _pick_integers(self, sums: Value) -> Value:
        """Pick [batch, candidates] of [union, batch]: single numbers are picked fastest from one
        row.
        """
        graph, op = self._graph, self._op
        zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
        num_rows = op.Squeeze(self._places.length(0))
        row = op.Range(zero, num_rows, one).unsqueeze(1)
        return self._gather(sums, self._places * num_rows + row)

    def _of_candidates(self, table: Value) -> Value:
        """Pick [batch, candidates] of [vocab]."""
        return self._gather(self._gather(table, self._candidates), self._places)

    def _gather(self, values: Value, index: Value) -> Value:
        op = self._op
        gathered = op.GatherElements(values.reshape(1, -1), index.reshape(1, -1), axis=1)
        return op.Reshape(gathered, op.Shape(index))

    def _pick_float(self, logits: Value) -> Value:
        """Pick [batch, candidates] of [batch, vocab]."""
        ids = self._op.Gather(self._candidates, self._places)
        return self._op.GatherElements(logits, ids, axis=1)

    def _is_own(self) -> Value:
        """Return which candidates are within a row's shortlist: [batch, candidates]."""
        graph = self._graph
        most = -(-self._vocab_size // WIDTH_STEP) * WIDTH_STEP
        count = graph.constant(np.arange(most), "int32")
        columns = self._op.Slice(count, graph.ints(0), self._places.length(1))
        return columns < self._lengths.unsqueeze(1)

    def _token_ids(self, columns: Value) -> Value:
        """Return the tokens of columns [batch, window] of the shortlist."""
        places = self._op.GatherElements(self._places, columns, axis=1)
        return self._op.Gather(self._candidates, places)
