from export.graph.writer import Value
from export.layers.attention import context_of, ragged_softmax
from export.layers.translator import TranslatorGraph
from serving.bundle.manifest import SOURCE, StateKind, StateSpec

from .config import BagOfWordsConfig


class BagOfWordsGraph(TranslatorGraph[BagOfWordsConfig]):
    @property
    def states(self) -> tuple[StateSpec, ...]:
        dim, state = self.config.dim, self.layers.state
        words = state("words", StateKind.CONSTANT, SOURCE, dim)
        return words, state("hidden", StateKind.REPLACE, dim)  # begins at zero

    def embed(self, ids: Value) -> Value:
        return self.layers.embed(ids, "embedding", self.config.vocab_size, self.config.dim)

    def encode(self, ids: Value, lengths: Value) -> None:
        self.graph.state_output(self.states[0], self.embed(ids))

    def step(self) -> None:
        graph, layers, dim, size = self.graph, self.layers, self.config.dim, self.config.vocab_size
        words, hidden = map(graph.state_input, self.states)
        word = self.embed(self.ids).squeeze(1)  # [batch, dim]
        query = layers.linear(hidden + word, ["query"], dim, [dim], bias=False)
        scores = layers.dot(query.unsqueeze(1), words, dim)  # [batch, source]
        weights = ragged_softmax(scores, graph.input("source_lengths", "int32", ()))
        both = graph.op.Concat(word, context_of(weights, words), axis=-1)
        gates = layers.linear(both, ["gates"], 2 * dim, [2 * dim], bias=True)
        keep, candidate = graph.split(gates, [dim, dim])
        candidate = candidate.tanh()
        hidden = candidate + keep.sigmoid() * (hidden - candidate)
        graph.next_state(self.states[1], hidden)
        layers.choose(layers.linear(hidden, ["output"], dim, [size], bias=False), size)
        self.put_cross_attention(weights)


build = BagOfWordsGraph.build
