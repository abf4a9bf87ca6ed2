"""Writes Luong's attention in the step graph: scores, the window of local attention, weights.

Equations are those of Luong et al. 2015, 3.1 and 3.2.
"""

from export.graph.value import Value
from export.layers.additive import additive_scores
from export.layers.basic import Layers
from export.layers.ragged import count, hardened, is_real, places, softmax_within
from models.configs.attention import Global, LocalM, LocalP
from models.configs.translators.luong import LuongConfig
from models.layers.equations import gaussian


class LuongAttention:
    def __init__(self, config: LuongConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph

    @property
    def hidden_parts(self) -> list[str]:
        """Name layers of h_t, each as large: W_a's half that reads it (concat), W_p (local-p)."""
        parts = []
        if self.config.score == "concat":
            parts.append("attention.score.query")
        if isinstance(self.config.attention, LocalP):
            parts.append("attention.center_hidden")
        return parts

    def weights(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        """Weigh by a_t f32 [batch, source], of h_t and what `hidden_parts` make of it."""
        weights = self._align(hidden, keys, parts)
        return hardened(weights) if self.config.hard_attention else weights

    def _align(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        lengths = self.graph.input("source_lengths", "int32", ())
        scores = self._scores(hidden, keys, parts)
        within = is_real(scores, lengths)
        attention = self.config.attention
        if isinstance(attention, Global):
            return softmax_within(scores, within)
        distances = self._distances(scores, lengths, parts)
        window = self.graph.constant(attention.window, "float32")
        weights = softmax_within(scores, within & (distances.abs() <= window))
        is_monotonic = isinstance(attention, LocalM)
        return weights if is_monotonic else weights * gaussian(distances, attention.window)

    def _scores(self, hidden: Value, keys: Value, parts: dict[str, Value]) -> Value:
        """Score as 3.1; products are summed position by position, as a matrix product's order may
        depend on how many there are.
        """
        dim = self.config.hidden_dim
        if self.config.score == "location":
            return self._scores_of_places(hidden, keys[:, :, 0])
        if self.config.score == "concat":
            query, name = parts["attention.score.query"], "attention.score.score"
            return additive_scores(self.layers, query, keys, name, dim)
        scores = self.layers.dot(hidden.unsqueeze(1), keys, dim)
        return scores * dim**-0.5 if self.config.score == "scaled-dot" else scores

    def _scores_of_places(self, hidden: Value, like: Value) -> Value:
        """Score as (8), as many positions as ``like`` [batch, source] has."""
        dim, longest = self.config.hidden_dim, self.config.max_source_tokens
        name = "attention.score.place"
        scores = self.layers.linear(hidden, [name], dim, [longest], bias=False).cast("float32")
        within = places(like).minimum(longest - 1)  # what is in the padding may be beyond them
        return self.graph.op.GatherElements(scores, within, axis=1)

    def _distances(self, scores: Value, lengths: Value, parts: dict[str, Value]) -> Value:
        """Take s - p_t f32 [batch, source]; s counts from 1."""
        positions = count(scores).cast("float32")
        if isinstance(self.config.attention, LocalM):
            times = self.graph.input("total_lengths", "int32", ())
            centers = times.minimum(lengths).cast("float32")
        else:
            inner = parts["attention.center_hidden"].tanh()
            centers = self._center(inner).sigmoid() * lengths.cast("float32")  # (9)
        return positions - centers.unsqueeze(1)

    def _center(self, inner: Value) -> Value:
        """Take v_p . inner: f32 [batch]."""
        name, dim = "attention.center.weight", self.config.hidden_dim
        vector = self.layers.float_weight(name, self.layers.weights.take(name, 1, dim)[0])
        return self.layers.dot(inner, vector, dim)
