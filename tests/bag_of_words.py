"""A gated decoder that attends to the source's words, whatever their order."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.attention import is_real, ragged_softmax
from export.layers.basic import Layers
from models.batch import length_mask
from models.configs.base import Size, TranslationModelConfig
from models.contract.models import State, Translator
from models.contract.vocabulary import Vocabulary
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


class BagOfWordsConfig(TranslationModelConfig):
    architecture: Literal["bag-of-words"] = "bag-of-words"
    dim: Size = 64
    tied_embeddings: bool = False


@dataclass(frozen=True)
class BagState(State):
    words: Tensor  # of the source [batch, source, dim]
    is_real: Tensor  # which of them are no padding [batch, source]
    hidden: Tensor  # [batch, dim]


class BagOfWords(Vocabulary, Translator[BagState]):
    def __init__(self, config: BagOfWordsConfig) -> None:
        super().__init__(config, config.dim)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.gates = nn.Linear(2 * config.dim, 2 * config.dim)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> BagState:
        words, is_real = self.embed(source_ids), length_mask(source_lengths, source_ids.shape[1])
        return BagState(words, is_real, hidden=torch.zeros_like(words[:, 0]))

    def read(self, ids: Tensor, state: BagState) -> tuple[Tensor, BagState]:
        hidden, hiddens = state.hidden, []
        for word in self.embed(ids).unbind(1):  # [batch, dim]
            scores = (self.query(hidden + word)[:, None] * state.words).sum(-1)  # [batch, source]
            weights = scores.masked_fill(~state.is_real, -torch.inf).softmax(-1)
            context = (weights[:, None] @ state.words)[:, 0]  # [batch, dim]
            keep, candidate = self.gates(torch.cat([word, context], -1)).chunk(2, -1)
            hidden = torch.lerp(candidate.tanh(), hidden, keep.sigmoid())
            hiddens.append(hidden)
        return torch.stack(hiddens, 1), replace(state, hidden=hidden)


def build(config: BagOfWordsConfig, weights: Weights, precision: Precision) -> ExportedModel:
    size, dim = config.vocab_size, config.dim
    words = StateSpec("words", StateKind.CONSTANT, (SOURCE, dim), "float32")
    hidden = StateSpec("hidden", StateKind.REPLACE, (dim,), "float32")  # begins at zero
    encode = Layers(GraphWriter("encode"), weights, precision)
    source_ids, _ = source_inputs(encode.graph)
    encode.graph.state_output(words, encode.embed(source_ids, "embedding", size, dim))

    def step(name: str) -> GraphWriter:
        layers = Layers(graph := GraphWriter(name), weights, precision)
        op, middle = graph.op, graph.ints(1)  # the axis between batch and dim
        ids = graph.input("ids", "int64", (1,))
        lengths = graph.input("source_lengths", "int32", ())
        memory, before = graph.state_input(words), graph.state_input(hidden)
        word = op.Squeeze(layers.embed(ids, "embedding", size, dim), middle)
        query = layers.linear(op.Add(before, word), ["query"], dim, [dim], bias=False)
        products = op.Mul(op.Unsqueeze(query, middle), memory)
        scores = op.ReduceSum(products, graph.ints(-1), keepdims=0)
        looks_at = ragged_softmax(graph, scores, is_real(graph, scores, lengths))
        attention = op.Unsqueeze(looks_at, middle)
        both = op.Concat(word, op.Squeeze(op.MatMul(attention, memory), middle), axis=-1)
        gates = layers.linear(both, ["gates"], 2 * dim, [2 * dim], bias=True)
        keep, candidate = graph.split(gates, [dim, dim])
        candidate = op.Tanh(candidate)
        after = op.Add(candidate, op.Mul(op.Sigmoid(keep), op.Sub(before, candidate)))
        graph.next_state(hidden, after)
        layers.choose(layers.linear(after, ["output"], dim, [size], bias=False), size)
        if name == "step_attention":
            graph.output("attention", attention, "float32", (1, SOURCE))
        return graph

    graphs = (encode.graph, step("step"), step("step_attention"))
    return translation_model(config, graphs, (words, hidden), alignment_heads=(0,))
