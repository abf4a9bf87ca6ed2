"""A gated decoder that attends to the source's words, whatever their order."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from export.families.translators.translation import TranslatorGraph
from export.graph.value import Value
from export.layers.additive import context_of
from export.layers.ragged import ragged_softmax
from models.batch import length_mask
from models.configs.base import Size, TranslationModelConfig
from models.contract.models import State, Translator
from models.contract.vocabulary import Vocabulary
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


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
        self.tell(weights)
