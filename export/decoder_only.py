"""Decoder-only language models: one step graph, for prompts and single tokens."""

from abc import ABC, abstractmethod
from itertools import chain

from export.attention import Heads, self_attention
from export.graph import Value
from export.language import language_model
from export.layers import Layers
from export.model import ExportedModel
from models.configs.decoder_only import DecoderOnlyConfig
from serving.bundle.manifest import StateKind, StateSpec


class DecoderOnlyStep(ABC):
    """What GPT-2 and Llama have in common; each says how positions enter and what it normalises
    and feeds forward by.
    """

    has_biases: bool

    def __init__(self, config: DecoderOnlyConfig, layers: Layers, heads: Heads) -> None:
        self.config, self.layers, self.graph, self.heads = config, layers, layers.graph, heads
        self.states: list[list[StateSpec]] = [
            heads.states("self", StateKind.APPEND, layer) for layer in range(config.num_layers)
        ]

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """ids [batch, tokens] after ``past_lengths`` positions -> the first layer's input."""
        return self.layers.embed(ids, "embedding", self.config.vocab_size, self.config.d_model)

    @abstractmethod
    def feed_forward(self, x: Value, name: str) -> Value:
        """The layer's second half, of x normalised [batch, tokens, d_model], without the sum."""

    @abstractmethod
    def norm(self, x: Value, name: str) -> Value:
        """x [batch, tokens or none, d_model] normalised by the weights ``name``."""

    def build(self) -> ExportedModel:
        config, graph, layers = self.config, self.graph, self.layers
        ids = graph.input("ids", "int64", ("tokens",))
        past_lengths = graph.input("past_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = self.embed(ids, past_lengths)
        for layer in range(config.num_layers):
            x = graph.op.Add(x, self._attend(x, layer, total_lengths))
            name = f"layers.{layer}.feed_forward"
            x = graph.op.Add(x, self.feed_forward(self.norm(x, f"{name}_norm"), name))
        x = layers.last_position(x, past_lengths, total_lengths)
        layers.choose(self._logits(self.norm(x, "norm")), config.vocab_size)
        return language_model(config, graph, tuple(chain(*self.states)))

    def linear(self, x: Value, names: list[str], in_dim: int, out_dims: list[int]) -> Value:
        return self.layers.linear(x, names, in_dim, out_dims, bias=self.has_biases)

    def _attend(self, x: Value, layer: int, total_lengths: Value) -> Value:
        graph, heads, name = self.graph, self.heads, f"layers.{layer}.attention"
        key_state, value_state = self.states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self.linear(
            self.norm(x, f"{name}_norm"),
            [f"{name}.{part}" for part in ("query", "key", "value")],
            self.config.d_model,
            [heads.query_dim, heads.kv_dim, heads.kv_dim],
        )
        mixed, keys, values = self_attention(
            graph, qkv, past, total_lengths, self.config.context_length, heads
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self.linear(mixed, [f"{name}.output"], heads.query_dim, [self.config.d_model])

    def _logits(self, x: Value) -> Value:
        name = "embedding" if self.config.tied_embeddings else "output"
        shape = (self.config.vocab_size, self.config.d_model)
        return self.layers.project(x, name, self.layers.weights.take(f"{name}.weight", *shape))
