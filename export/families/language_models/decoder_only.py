"""Builds decoder-only language models: one step graph, for prompts and single tokens."""

from abc import ABC, abstractmethod
from itertools import chain
from typing import Generic, TypeVar

from export.families.language_models.language import language_model
from export.graph.model import ExportedModel
from export.graph.value import Value
from export.graph.weights import Weights
from export.graph.writer import GraphWriter
from export.layers.attention import Heads, self_attention
from export.layers.basic import Layers
from export.layers.vocabulary import VocabularyGraph
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from serving.bundle.manifest import Precision, StateKind, StateSpec

Config = TypeVar("Config", bound=DecoderOnlyConfig)


class DecoderOnlyGraph(ABC, Generic[Config]):
    """Writes what all of them have in common; each says how positions enter, what it normalises and
    feeds forward by, and what has biases.
    """

    has_qkv_bias = False
    has_mixing_bias = False  # after attention
    has_output_bias = False  # of the vocabulary's logits, where its tables are not tied
    embedding_scale = 1.0
    logit_cap: float | None = None

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        has_bias = self.has_output_bias and not config.tied_embeddings
        self.words = VocabularyGraph(
            layers,
            config,
            (config.d_model, config.d_model),
            scale=self.embedding_scale,
            bias="output.bias" if has_bias else None,
        )
        self.heads = [self.heads_of(layer) for layer in range(config.num_layers)]
        self.states: list[list[StateSpec]] = [
            heads.states("self", StateKind.APPEND, layer) for layer, heads in enumerate(self.heads)
        ]

    @abstractmethod
    def heads_of(self, layer: int) -> Heads:
        """Size attention as one layer has it."""

    @abstractmethod
    def feed_forward(self, x: Value, name: str) -> Value:
        """Write a layer's second half, of x normalised [batch, tokens, d_model]: no sum yet."""

    @abstractmethod
    def norm(self, x: Value, name: str) -> Value:
        """Normalise x [batch, tokens or none, d_model] by the weights ``name``."""

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """Make ids [batch, tokens] after ``past_lengths`` positions the first layer's input."""
        return self.words.embed(ids)

    def normalise_heads(self, qkv: Value, name: str, heads: Heads) -> Value:
        """Make queries, keys and values, side by side, [batch, tokens, all], what attends."""
        return qkv

    def block(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """Write one layer with its residual sums, x [batch, tokens, d_model]."""
        name = f"layers.{layer}"
        x = x + self.attend(x, layer, total_lengths)
        normed = self.norm(x, f"{name}.feed_forward_norm")
        return x + self.feed_forward(normed, f"{name}.feed_forward")

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        layers = Layers(GraphWriter("step"), weights, precision, in_blocks=True)
        return cls(config, layers).write()

    def write(self) -> ExportedModel:
        """Write the one graph."""
        config, graph, layers = self.config, self.graph, self.layers
        ids = graph.input("ids", "int64", ("tokens",))
        past_lengths = graph.input("past_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = self.embed(ids, past_lengths)
        for layer in range(config.num_layers):
            x = self.block(x, layer, total_lengths)
        x = layers.last_position(x, past_lengths, total_lengths)
        self.words.choose(self.norm(x, "norm"), self.logit_cap)
        return language_model(config, graph, tuple(chain(*self.states)))

    def attend(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """Attend by x, which is normalised first."""
        graph, heads, name = self.graph, self.heads[layer], f"layers.{layer}.attention"
        key_state, value_state = self.states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self.layers.linear(
            self.norm(x, f"{name}_norm"),
            [f"{name}.{part}" for part in ("query", "key", "value")],
            self.config.d_model,
            [heads.trained_query_dim, heads.trained_kv_dim, heads.trained_kv_dim],
            bias=self.has_qkv_bias,
            into=heads.layout,
        )
        found, keys, values = self_attention(
            self.normalise_heads(qkv, name, heads),
            past,
            total_lengths,
            self.config.context_length,
            heads,
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self.layers.linear(
            found,
            [f"{name}.output"],
            heads.trained_query_dim,
            [self.config.d_model],
            bias=self.has_mixing_bias,
            out_of=heads.layout,
        )
