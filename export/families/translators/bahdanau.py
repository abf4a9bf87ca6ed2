"""RNNsearch: a bidirectional encoder, and a decoder step with additive attention."""

from export.families.translators.context_decoder import ContextDecoder
from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter, Value
from export.layers.additive import additive_scores, mix
from export.layers.attention import is_real, ragged_softmax
from export.layers.basic import Layers
from export.layers.recurrent import RecurrentLayers
from export.layers.vocabulary import Vocabulary
from models.configs.translators.bahdanau import BahdanauConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: BahdanauConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Part(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Part(config, Layers(GraphWriter("step"), weights, precision))
    step_attention = _Part(config, Layers(GraphWriter("step_attention"), weights, precision))
    encode.encode()
    step.step()
    step_attention.step(with_attention=True)
    return translation_model(
        config,
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=(step.memory, step.keys, *step.decoder.states),
        alignment_heads=(0,),
    )


class _Part:
    def __init__(self, config: BahdanauConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.memory_dim = 2 * config.hidden_dim
        self.vocabulary = Vocabulary(config, layers)
        self.decoder = ContextDecoder(config, layers, self.memory_dim, config.readout)
        constant, dtype = StateKind.CONSTANT, layers.dtype
        self.memory = StateSpec("memory", constant, (SOURCE, self.memory_dim), dtype)
        self.keys = StateSpec("keys", constant, (SOURCE, config.attention_dim), dtype)

    def encode(self) -> None:
        """Annotations h_j, their keys, and s_0 = tanh(W_s h<-_1) (A.2.2)."""
        config, graph, dim = self.config, self.graph, self.config.hidden_dim
        ids, lengths = source_inputs(graph)
        encoder = RecurrentLayers(
            self.layers, "encoder", config.cell, config.embedding_dim, dim, bidirectional=True
        )
        embedded = self.vocabulary.embed_source(ids)
        memory, [_, (backward, *_)] = encoder.encode(embedded, lengths)
        sizes = self.memory_dim, [config.attention_dim]
        keys = self.layers.linear(memory, ["attention.key"], *sizes, bias=True)
        initial = self.layers.linear(backward, ["initial"], dim, [dim], bias=True)
        graph.state_output(self.memory, memory)
        graph.state_output(self.keys, keys)
        graph.state_output(self.decoder.states[0], graph.op.Tanh(initial))

    def step(self, with_attention: bool = False) -> None:
        graph, op = self.graph, self.graph.op
        ids = graph.input("ids", "int64", (1,))
        source_lengths = graph.input("source_lengths", "int32", ())
        memory, keys = graph.state_input(self.memory), graph.state_input(self.keys)
        state = self.decoder.open()
        weights = self._align(state[0], keys, source_lengths)
        context = self.decoder.project_context(mix(self.layers, weights, memory))
        token = self.decoder.project_token(self.vocabulary.embed_token(ids))
        self.vocabulary.choose(self.decoder.step(op.Add(token, context), state))
        if with_attention:
            one_head = op.Unsqueeze(weights, graph.ints(1))
            graph.output("attention", one_head, "float32", (1, SOURCE))

    def _align(self, hidden: Value, keys: Value, source_lengths: Value) -> Value:
        """softmax(v . tanh(W s_{i-1} + keys)) over each row's own source: f32 [batch, source]."""
        dim, hidden_dim = self.config.attention_dim, self.config.hidden_dim
        query = self.layers.linear(hidden, ["attention.query"], hidden_dim, [dim], bias=False)
        scores = additive_scores(self.layers, query, keys, "attention.score", dim)
        return ragged_softmax(self.graph, scores, is_real(self.graph, scores, source_lengths))
