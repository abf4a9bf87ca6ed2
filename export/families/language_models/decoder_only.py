"""Decoder-only language models: one step graph, for prompts and single tokens."""

from abc import ABC, abstractmethod
from itertools import chain

from export.families.language_models.language import language_model
from export.graph.model import ExportedModel
from export.graph.writer import Value
from export.layers.attention import Heads, self_attention
from export.layers.basic import Layers
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from serving.bundle.manifest import StateKind, StateSpec


class DecoderOnlyStep(ABC):
    """What all of them have in common; each says how positions enter, what it normalises and feeds
    forward by, and what has biases.
    """

    has_qkv_bias = False
    has_mixing_bias = False  # after attention
    has_output_bias = False  # of the vocabulary's logits

    def __init__(self, config: DecoderOnlyConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.heads = [self.heads_of(layer) for layer in range(config.num_layers)]
        self.states: list[list[StateSpec]] = [
            heads.states("self", StateKind.APPEND, layer) for layer, heads in enumerate(self.heads)
        ]

    @abstractmethod
    def heads_of(self, layer: int) -> Heads:
        """Attention as one layer has it."""

    @abstractmethod
    def feed_forward(self, x: Value, name: str) -> Value:
        """The layer's second half, of x normalised [batch, tokens, d_model], without the sum."""

    @abstractmethod
    def norm(self, x: Value, name: str) -> Value:
        """x [batch, tokens or none, d_model] normalised by the weights ``name``."""

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """ids [batch, tokens] after ``past_lengths`` positions -> the first layer's input."""
        return self.layers.embed(ids, "embedding", self.config.vocab_size, self.config.d_model)

    def normalise_heads(self, qkv: Value, name: str, heads: Heads) -> Value:
        """Queries, keys and values side by side, [batch, tokens, all of them], as they attend."""
        return qkv

    def block(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """One layer with its residual sums, x [batch, tokens, d_model]."""
        op, name = self.graph.op, f"layers.{layer}"
        x = op.Add(x, self.attend(x, layer, total_lengths))
        normed = self.norm(x, f"{name}.feed_forward_norm")
        return op.Add(x, self.feed_forward(normed, f"{name}.feed_forward"))

    def build(self) -> ExportedModel:
        config, graph, layers = self.config, self.graph, self.layers
        ids = graph.input("ids", "int64", ("tokens",))
        past_lengths = graph.input("past_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = self.embed(ids, past_lengths)
        for layer in range(config.num_layers):
            x = self.block(x, layer, total_lengths)
        x = layers.last_position(x, past_lengths, total_lengths)
        layers.choose(self.logits(self.norm(x, "norm")), config.vocab_size)
        return language_model(config, graph, tuple(chain(*self.states)))

    def attend(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """What attention says of x, which is normalised first."""
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
        mixed, keys, values = self_attention(
            graph,
            self.normalise_heads(qkv, name, heads),
            past,
            total_lengths,
            self.config.context_length,
            heads,
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self.layers.linear(
            mixed,
            [f"{name}.output"],
            heads.trained_query_dim,
            [self.config.d_model],
            bias=self.has_mixing_bias,
            out_of=heads.layout,
        )

    def logits(self, x: Value) -> Value:
        """x [batch, d_model] -> [batch, vocab]."""
        vocab_size, is_tied = self.config.vocab_size, self.config.tied_embeddings
        name, take = "embedding" if is_tied else "output", self.layers.weights.take
        weight = take(f"{name}.weight", vocab_size, self.config.d_model)
        has_bias = self.has_output_bias and not is_tied
        bias = take(f"{name}.bias", vocab_size) if has_bias else None
        return self.layers.score(x, name, weight, bias)
