"""Scores of few tokens: each row's own lexical shortlist (Junczys-Dowmunt et al. 2018, "Marian:
Cost-effective High-Quality Neural Machine Translation in C++", 4) in place of the vocabulary.

The tokens on any row's shortlist, `candidates`, are scored for all rows in one product; then each
row picks its own. With the real shortlists of a Bergamot model that took 0.3 ms for 32 rows, a
product for each row 0.8 ms, the whole vocabulary 0.8 ms; for 64 rows 0.8, 4.7 and 2.0. Sums of
integers do not depend on what else is summed, so rows keep their bits whatever shares the batch. In
floats the whole vocabulary is scored, as sums of floats would depend on the number of candidates.
"""

import numpy as np

from export.graph.choice import filled_up
from export.graph.quantise import Channels, quantise_rows
from export.graph.writer import Array, Value
from export.layers.basic import Layers
from models.configs.base import ArchitectureConfig, TranslationModelConfig
from serving.bundle.manifest import CANDIDATES, UNION

WIDTH_STEP = 512  # engines pad shortlists to no more than the next multiple


def choose_tokens(
    layers: Layers,
    config: ArchitectureConfig,
    x: Value,
    name: str,
    weight: Array,
    bias: Array | None = None,
    channels: Channels | None = None,
) -> None:
    """The step graph's outputs, from x [batch, dim] and the output layer, weight [vocab, dim]."""
    if isinstance(config, TranslationModelConfig) and config.shortlist:
        Shortlist(layers, config.vocab_size).choose(x, name, weight, bias, channels)
    else:
        if layers.quantiser is not None and channels is None:
            weight, bias = filled_up(weight, bias)
        logits = layers.score(x, name, weight, bias, channels)
        layers.choose(logits, config.vocab_size, len(weight))


class Shortlist:
    """The inputs of a step graph that scores candidates only.

    candidates [union]: token ids. shortlist [batch, candidates]: of each row the places of its own
    among them, ascending by id. Beyond shortlist_lengths [batch] it is padding.
    """

    def __init__(self, layers: Layers, vocab_size: int) -> None:
        self._layers, self._graph, self._op = layers, layers.graph, layers.op
        self._vocab_size = vocab_size
        self._candidates = self._graph.input("candidates", "int64", (UNION,), per_row=False)
        self._places = self._graph.input("shortlist", "int64", (CANDIDATES,))
        self._lengths = self._graph.input("shortlist_lengths", "int32", ())

    def choose(
        self, x: Value, name: str, weight: Array, bias: Array | None, channels: Channels | None
    ) -> None:
        """The graph's outputs, from x [batch, dim] and the output layer, weight [vocab, dim]."""
        if self._layers.quantiser is None:
            scores = self._pick_float(self._layers.score(x, name, weight, bias))
        else:
            scores = self._integer_scores(x, name, weight, channels)
            if bias is not None:
                table = self._graph.weight(f"{name}.bias", bias)
                scores = self._op.Add(scores, self._of_candidates(table))
        nothing = self._graph.constant(-np.inf, self._layers.dtype)
        scores = self._op.Where(self._is_own(), scores, nothing)
        self._layers.choose(scores, self._vocab_size, CANDIDATES, self._token_ids)

    def _integer_scores(
        self, x: Value, name: str, weight: Array, channels: Channels | None
    ) -> Value:
        """-> [batch, candidates], the bias not in them yet."""
        graph, op = self._graph, self._op
        assert self._layers.quantiser is not None
        levels, step = self._layers.quantiser.signed(x, channels)
        table, scale = quantise_rows(weight, channels)
        rows = op.Gather(graph.weight(f"{name}.rows", table), self._candidates)  # [union, dim]
        transposed = op.Transpose(levels, perm=[1, 0])
        sums = op.MatMulInteger(rows, transposed, graph.constant(128, "uint8"))  # [union, batch]
        scores = op.Mul(op.Cast(self._pick_integers(sums), to=1), step)
        if len(np.unique(scale)) == 1:
            return op.Mul(scores, graph.constant(scale[0], "float32"))
        return op.Mul(scores, self._of_candidates(graph.weight(f"{name}.row_scale", scale)))

    def _pick_integers(self, sums: Value) -> Value:
        """[union, batch] -> [batch, candidates]. Single numbers are gathered fastest in one row."""
        graph, op = self._graph, self._op
        zero, one = graph.constant(0, "int64"), graph.constant(1, "int64")
        num_rows = op.Squeeze(op.Shape(self._places, start=0, end=1))
        row = op.Unsqueeze(op.Range(zero, num_rows, one), graph.ints(1))
        index = op.Add(op.Mul(self._places, num_rows), row)
        return self._gather(sums, index)

    def _of_candidates(self, table: Value) -> Value:
        """[vocab] -> [batch, candidates]."""
        return self._gather(self._gather(table, self._candidates), self._places)

    def _gather(self, values: Value, index: Value) -> Value:
        graph, op = self._graph, self._op
        flat = graph.ints(1, -1)
        found = op.GatherElements(op.Reshape(values, flat), op.Reshape(index, flat), axis=1)
        return op.Reshape(found, op.Shape(index))

    def _pick_float(self, logits: Value) -> Value:
        """[batch, vocab] -> [batch, candidates]."""
        ids = self._op.Gather(self._candidates, self._places)
        return self._op.GatherElements(logits, ids, axis=1)

    def _is_own(self) -> Value:
        """Whether a row's shortlist goes as far: [batch, candidates]."""
        graph, op = self._graph, self._op
        most = -(-self._vocab_size // WIDTH_STEP) * WIDTH_STEP
        count = graph.constant(np.arange(most), "int32")
        columns = op.Slice(count, graph.ints(0), op.Shape(self._places, start=1, end=2))
        return op.Less(columns, op.Unsqueeze(self._lengths, graph.ints(1)))

    def _token_ids(self, columns: Value) -> Value:
        """Of columns [batch, window] of the shortlist."""
        places = self._op.GatherElements(self._places, columns, axis=1)
        return self._op.Gather(self._candidates, places)
