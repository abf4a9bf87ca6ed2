"""Graphs of the RNN encoder-decoder (Cho et al. 2014): `encode` writes the projected context."""

from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.recurrent import ContextDecoder, RecurrentLayers
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import recurrent_vocabulary
from models.architectures.cho.config import ChoConfig
from serving.bundle.manifest import StateKind, StateSpec


class ChoGraph(TranslatorGraph[ChoConfig]):
    alignment_heads = ()

    def __init__(self, config: ChoConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.words = recurrent_vocabulary(layers, config)
        self.decoder = ContextDecoder(config, layers, config.hidden_dim, "maxout")
        self.context = layers.state("context", StateKind.CONSTANT, self.decoder.feed_dim)

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.context, *self.decoder.states)

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write the projections of c = tanh(V h_N), and h'_0 = tanh(V' c) (A.1)."""
        config, graph, dim = self.config, self.graph, self.config.hidden_dim
        encoder = RecurrentLayers(self.layers, "encoder", config.cell, config.embedding_dim, dim)
        _, [(last, *_)] = encoder.encode(self.words.embed_source(ids), lengths)
        context = self.layers.linear(last, ["summary"], dim, [dim], bias=True).tanh()
        hidden = self.layers.linear(context, ["initial"], dim, [dim], bias=True).tanh()
        graph.state_output(self.context, self.decoder.project_context(context))
        graph.state_output(self.decoder.states[0], hidden)

    def step(self) -> None:
        token = self.decoder.project_token(self.words.embed_token(self.ids))
        feed = token + self.graph.state_input(self.context)
        self.words.choose(self.decoder.step(feed, self.decoder.open()))


build = ChoGraph.build
