"""RNN encoder-decoder (Cho et al. 2014): encode gives what the context feeds to every step."""

from export.families.translators.context_decoder import ContextDecoder
from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers
from export.layers.vocabulary import Vocabulary
from models.configs.translators.cho import ChoConfig
from serving.bundle.manifest import Precision, StateKind, StateSpec


def build(config: ChoConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Part(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Part(config, Layers(GraphWriter("step"), weights, precision))
    encode.encode()
    step.step()
    return translation_model(
        config,
        graphs=(encode.graph, step.graph),
        states=(step.context, *step.decoder.states),
    )


class _Part:
    def __init__(self, config: ChoConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.vocabulary = Vocabulary(config, layers)
        self.decoder = ContextDecoder(config, layers, config.hidden_dim, "maxout")
        shape = (self.decoder.feed_dim,)
        self.context = StateSpec("context", StateKind.CONSTANT, shape, layers.dtype)

    def encode(self) -> None:
        """c = tanh(V h_N), of which is kept what it feeds; h'_0 = tanh(V' c) (A.1)."""
        config, graph, op = self.config, self.graph, self.graph.op
        dim = config.hidden_dim
        ids, lengths = source_inputs(graph)
        encoder = RecurrentLayers(self.layers, "encoder", config.cell, config.embedding_dim, dim)
        _, [(last, *_)] = encoder.encode(self.vocabulary.embed_source(ids), lengths)
        context = op.Tanh(self.layers.linear(last, ["summary"], dim, [dim], bias=True))
        hidden = op.Tanh(self.layers.linear(context, ["initial"], dim, [dim], bias=True))
        graph.state_output(self.context, self.decoder.project_context(context))
        graph.state_output(self.decoder.states[0], hidden)

    def step(self) -> None:
        graph = self.graph
        embedded = self.vocabulary.embed_token(graph.input("ids", "int64", (1,)))
        token = self.decoder.project_token(embedded)
        feed = graph.op.Add(token, graph.state_input(self.context))
        self.vocabulary.choose(self.decoder.step(feed, self.decoder.open()))
