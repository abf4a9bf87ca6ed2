"""A gated decoder that attends to the source's words, whatever their order."""

from typing import Literal

import torch
from torch import Tensor, nn

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.attention import is_real, ragged_softmax
from export.layers.basic import Layers
from models.batch import Batch, length_mask
from models.configs.base import Size, TranslationModelConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec

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
        memory, past = graph.state_input(words), graph.state_input(hidden)
        word = op.Squeeze(layers.embed(ids, "embedding", size, dim), middle)
        query = layers.linear(op.Add(past, word), ["query"], dim, [dim], bias=False)
        products = op.Mul(op.Unsqueeze(query, middle), memory)
        scores = op.ReduceSum(products, graph.ints(-1), keepdims=0)
        looks = op.Unsqueeze(ragged_softmax(graph, scores, is_real(graph, scores, lengths)), middle)
        both = op.Concat(word, op.Squeeze(op.MatMul(looks, memory), middle), axis=-1)
        gates = layers.linear(both, ["gates"], 2 * dim, [2 * dim], bias=True)
        keep, new = graph.split(gates, [dim, dim])
        new = op.Tanh(new)
        output = op.Add(new, op.Mul(op.Sigmoid(keep), op.Sub(past, new)))
        graph.next_state(hidden, output)
        layers.choose(layers.linear(output, ["project"], dim, [size], bias=True), size)
        if name == "step_attention":
            graph.output("attention", looks, "float32", (1, SOURCE))
        return graph

    graphs = (encode.graph, step("step"), step("step_attention"))
    return translation_model(config, graphs, (words, hidden), alignment_heads=(0,))
