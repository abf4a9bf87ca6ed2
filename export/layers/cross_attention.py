"""Attention of a decoder's layers to the source, put out by the graph that is to tell of it."""

from export.graph.value import Value
from export.graph.writer import GraphWriter
from export.layers.attention import Heads
from export.layers.memory import ReadMemory
from export.layers.ragged import is_real, softmax_within
from serving.bundle.manifest import SOURCE


class CrossAttention:
    """Of all layers of one step graph.

    Where it tells, it puts out the attention of all layers' heads, computed a second time beside
    the operator that mixes the values, so that everything else stays what it is without.
    """

    def __init__(
        self, graph: GraphWriter, heads: Heads, source_lengths: Value, tells: bool
    ) -> None:
        self._graph, self._heads, self._source_lengths = graph, heads, source_lengths
        self._tells = tells
        self._scores: list[Value] = []

    def attend(self, query: Value, memory: ReadMemory) -> Value:
        if self._tells:
            self._scores.append(memory.scores(query))
        return memory.attend(query, self._source_lengths)

    def finish(self) -> None:
        """Put out what is to be told, when the graph's layers are written."""
        if not self._tells:
            return
        any_head = self._scores[0].max(1, keepdims=False)  # for its shape
        within = is_real(any_head, self._source_lengths).unsqueeze(1)
        attention = softmax_within(self._graph.op.Concat(*self._scores, axis=1), within)
        num_heads = len(self._scores) * self._heads.num_heads
        self._graph.output("attention", attention, "float32", (num_heads, SOURCE))
