"""Graphs of RNNsearch: a bidirectional encoder, and a decoder step with additive attention."""

from export.graph.writer import Value
from export.layers.attention import attend_to_states, context_of, one_hot_of_largest
from export.layers.basic import Layers
from export.layers.recurrent import ContextDecoder, RecurrentLayers
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.bahdanau.config import BahdanauConfig
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


class BahdanauGraph(TranslatorGraph[BahdanauConfig]):
    def __init__(self, config: BahdanauConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.memory_dim = 2 * config.hidden_dim
        self.words = recurrent_vocabulary(layers, config)
        self.decoder = ContextDecoder(config, layers, self.memory_dim, config.readout)
        self.memory = layers.state("memory", StateKind.CONSTANT, SOURCE, self.memory_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, SOURCE, config.attention_dim)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.memory, self.keys, *self.decoder.states)

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write annotations h_j, their keys, and s_0 = tanh(W_s h<-_1) (A.2.2)."""
        config, graph, dim = self.config, self.graph, self.config.hidden_dim
        encoder = RecurrentLayers(
            self.layers, "encoder", config.cell, config.embedding_dim, dim, bidirectional=True
        )
        memory, [_, (backward, *_)] = encoder.encode(self.words.embed_source(ids), lengths)
        sizes = self.memory_dim, [config.attention_dim]
        keys = self.layers.linear(memory, ["attention.key"], *sizes, bias=True)
        initial = self.layers.linear(backward, ["initial"], dim, [dim], bias=True)
        graph.state_output(self.memory, memory)
        graph.state_output(self.keys, keys)
        graph.state_output(self.decoder.states[0], initial.tanh())

    def step(self) -> None:
        """Write c_i, s_i and the readout (A.2.2)."""
        graph = self.graph
        source_lengths = graph.input("source_lengths", "int32", ())
        memory, keys = graph.state_input(self.memory), graph.state_input(self.keys)
        state = self.decoder.open()
        weights, context = self._attend(state[0], keys, memory, source_lengths)
        context = self.decoder.project_context(context)
        token = self.decoder.project_token(self.words.embed_token(self.ids))
        self.words.choose(self.decoder.step(token + context, state))
        self.put_cross_attention(weights)

    def _attend(
        self, hidden: Value, keys: Value, memory: Value, source_lengths: Value
    ) -> tuple[Value, Value]:
        """Return the weights f32 [batch, source] over each row's own source, and c_i."""
        config, dim = self.config, self.config.attention_dim
        query = self.layers.linear(
            hidden, ["attention.query"], config.hidden_dim, [dim], bias=False
        )
        weights, context = attend_to_states(
            self.layers,
            query,
            keys,
            memory,
            source_lengths,
            dim,
            "attention.score" if config.score == "additive" else None,
            dim**-0.5 if config.score == "scaled-dot" else 1.0,
        )
        if not config.hard_attention:
            return weights, context
        hard = one_hot_of_largest(weights)
        return hard, context_of(hard, memory)


build = BahdanauGraph.build
