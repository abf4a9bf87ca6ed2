"""A gated decoder that attends to the source's words, whatever their order."""

from typing import Literal

import torch
from torch import Tensor, nn

from export.families.translators.translation import TranslatorGraph
from export.graph.value import Value
from export.layers.additive import context_of
from export.layers.ragged import ragged_softmax
from models.batch import Batch, length_mask
from models.configs.base import Size, TranslationModelConfig
from serving.bundle.manifest import SOURCE, StateKind, StateSpec

State = dict[str, Tensor]


class BagOfWordsConfig(TranslationModelConfig):
    architecture: Literal["bag-of-words"] = "bag-of-words"
    dim: Size = 64


class BagOfWords(nn.Module):
    def __init__(self, config: BagOfWordsConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.dim)
        nn.init.normal_(self.embedding.weight, std=config.dim**-0.5)
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.gates = nn.Linear(2 * config.dim, 2 * config.dim)
        self.project = nn.Linear(config.dim, config.vocab_size)

    def forward(self, batch: Batch) -> Tensor:
        state, hidden = self.start(batch.source_ids, batch.source_lengths), []
        for ids in batch.input_ids.unbind(1):
            state = self.step(ids, state)[1]
            hidden.append(state["hidden"])
        return torch.stack(hidden, 1)  # [batch, target, dim]

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> State:
        words, mask = self.embedding(source_ids), length_mask(source_lengths, source_ids.shape[1])
        return {"words": words, "mask": mask, "hidden": torch.zeros_like(words[:, 0])}

    def step(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        word, words, hidden = self.embedding(ids), state["words"], state["hidden"]
        scores = (self.query(hidden + word)[:, None] * words).sum(-1)  # [batch, source]
        weights = scores.masked_fill(~state["mask"], -torch.inf).softmax(-1)
        context = (weights[:, None] @ words)[:, 0]  # [batch, dim]
        keep, new = self.gates(torch.cat([word, context], -1)).chunk(2, -1)
        hidden = torch.lerp(new.tanh(), hidden, keep.sigmoid())
        return hidden, {**state, "hidden": hidden}


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
        keep, new = graph.split(gates, [dim, dim])
        new = new.tanh()
        hidden = new + keep.sigmoid() * (hidden - new)
        graph.next_state(self.states[1], hidden)
        layers.choose(layers.linear(hidden, ["project"], dim, [size], bias=True), size)
        self.tell(weights)
