"""The encoder-decoder Transformer: encode gives cross keys and values, step appends to its own."""

import math
from itertools import chain

import numpy as np

from export.attention import (
    Heads,
    KeyValue,
    attention_scores,
    count,
    cross_attention,
    encoder_attention,
    is_real,
    ragged_softmax,
    self_attention,
    split_heads,
)
from export.graph import Array, GraphWriter, Value
from export.layers import Layers
from export.model import ExportedModel
from export.translation import source_inputs, translation_limits, translation_tokens
from export.weights import Weights
from models.configs.transformer import TransformerConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: TransformerConfig, weights: Weights, precision: Precision) -> ExportedModel:
    encode = _Encode(config, Layers(GraphWriter("encode"), weights, precision))
    step = _Step(config, Layers(GraphWriter("step"), weights, precision))
    step_attention = _StepAttention(
        config, Layers(GraphWriter("step_attention"), weights, precision)
    )
    encode.build(step.cross_states)
    step.build()
    step_attention.build()
    return ExportedModel(
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=tuple(chain(*step.self_states, *step.cross_states)),
        tokens=translation_tokens(config),
        limits=translation_limits(config),
        alignment_heads=_alignment_heads(config),
    )


class _Stack:
    """What the encoder and the decoder share: residual sublayers with a norm before or after."""

    def __init__(self, config: TransformerConfig, layers: Layers) -> None:
        self.config = config
        self.layers = layers
        self.graph = layers.graph
        self.heads = Heads(config.num_heads, config.num_heads, config.head_dim, layers.dtype)

    def embed(self, ids: Value, side: str) -> Value:
        name = "embedding" if self.config.tied_embeddings else f"{side}_embedding"
        dim = self.config.d_model
        return self.layers.embed(ids, name, self.config.vocab_size, dim, math.sqrt(dim))

    def position_table(self, stack: str, num_positions: int) -> Value:
        name = f"{stack}.positions.weight"
        if self.config.positions == "learned":
            table = self.layers.weights.take(name, num_positions, self.config.d_model)
        else:
            table = sinusoids(num_positions, self.config.d_model)
        return self.layers.float_weight(name, table)

    def enter(self, x: Value, norm: str) -> Value:
        return self._norm(x, norm) if self.config.norm == "pre" else x

    def leave(self, x: Value, update: Value, norm: str) -> Value:
        x = self.graph.op.Add(x, update)
        return x if self.config.norm == "pre" else self._norm(x, norm)

    def finish(self, x: Value, stack: str) -> Value:
        return self._norm(x, f"{stack}.norm") if self.config.norm == "pre" else x

    def queries_keys_values(self, x: Value, name: str) -> Value:
        names = [f"{name}.{part}" for part in ("query", "key", "value")]
        return self.linear(x, *names)

    def linear(self, x: Value, *names: str) -> Value:
        """Linear layers of d_model outputs each, side by side."""
        dim = self.config.d_model
        return self.layers.linear(x, names, dim, [dim] * len(names), bias=True)

    def feed_forward(self, x: Value, layer: str) -> Value:
        config, name = self.config, f"{layer}.feed_forward"
        y = self.enter(x, f"{name}_norm")
        y = self.layers.linear(y, [f"{name}.up"], config.d_model, [config.ffn_dim], bias=True)
        y = self.graph.op.Relu(y) if config.activation == "relu" else self.graph.op.Gelu(y)
        y = self.layers.linear(y, [f"{name}.down"], config.ffn_dim, [config.d_model], bias=True)
        return self.leave(x, y, f"{name}_norm")

    def _norm(self, x: Value, name: str) -> Value:
        return self.layers.layer_norm(x, name, self.config.d_model)


class _Encode(_Stack):
    def build(self, cross_states: list[list[StateSpec]]) -> None:
        ids, lengths = source_inputs(self.graph)
        memory = self._encode(ids, lengths)
        for layer, states in enumerate(cross_states):
            for state, part in zip(states, ("key", "value"), strict=True):
                projected = self.linear(memory, f"decoder.layers.{layer}.cross_attention.{part}")
                heads = split_heads(self.graph, projected, self.heads)
                self.graph.state_output(state, heads)

    def _encode(self, ids: Value, lengths: Value) -> Value:
        x = self.graph.op.Add(self.embed(ids, "source"), self._positions(ids))
        for layer in range(self.config.encoder_layers):
            x = self._layer(x, lengths, f"encoder.layers.{layer}")
        return self.finish(x, "encoder")

    def _positions(self, ids: Value) -> Value:
        """Position vectors [batch, source, d_model]; padding may go beyond the table."""
        op, graph, limit = self.graph.op, self.graph, self.config.max_source_tokens
        positions = op.Sub(count(graph, ids), graph.constant(1, "int32"))
        clipped = op.Min(positions, graph.constant(limit - 1, "int32"))
        return op.Gather(self.position_table("encoder", limit), clipped)

    def _layer(self, x: Value, lengths: Value, layer: str) -> Value:
        name = f"{layer}.self_attention"
        qkv = self.queries_keys_values(self.enter(x, f"{name}_norm"), name)
        mixed = encoder_attention(self.graph, qkv, lengths, self.heads)
        x = self.leave(x, self.linear(mixed, f"{name}.output"), f"{name}_norm")
        return self.feed_forward(x, layer)


class _Step(_Stack):
    def __init__(self, config: TransformerConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.self_states = self._states("self", StateKind.APPEND)
        self.cross_states = self._states("cross", StateKind.CONSTANT)

    def build(self) -> None:
        graph = self.graph
        ids = graph.input("ids", "int64", (1,))
        past_lengths = graph.input("past_lengths", "int32", ())
        self.source_lengths = graph.input("source_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = graph.op.Add(self.embed(ids, "target"), self._position(past_lengths))
        for layer in range(self.config.decoder_layers):
            x = self._layer(x, layer, total_lengths)
        x = graph.op.Squeeze(self.finish(x, "decoder"), graph.ints(1))
        self.layers.choose(self._logits(x), self.config.vocab_size)

    def _states(self, name: str, kind: StateKind) -> list[list[StateSpec]]:
        return [self.heads.states(name, kind, layer) for layer in range(self.config.decoder_layers)]

    def _position(self, past_lengths: Value) -> Value:
        """Position vectors of the new tokens: [batch, 1, d_model]."""
        table = self.position_table("decoder", self.config.max_target_tokens)
        return self.graph.op.Gather(
            table, self.graph.op.Unsqueeze(past_lengths, self.graph.ints(1))
        )

    def _layer(self, x: Value, layer: int, total_lengths: Value) -> Value:
        graph, prefix = self.graph, f"decoder.layers.{layer}"
        key_state, value_state = self.self_states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        name = f"{prefix}.self_attention"
        qkv = self.queries_keys_values(self.enter(x, f"{name}_norm"), name)
        mixed, keys, values = self_attention(
            graph, qkv, past, total_lengths, self.config.max_target_tokens, self.heads
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        x = self.leave(x, self.linear(mixed, f"{name}.output"), f"{name}_norm")

        key_state, value_state = self.cross_states[layer]
        memory = (graph.state_input(key_state), graph.state_input(value_state))
        name = f"{prefix}.cross_attention"
        query = self.linear(self.enter(x, f"{name}_norm"), f"{name}.query")
        mixed = self._attend(query, memory)
        x = self.leave(x, self.linear(mixed, f"{name}.output"), f"{name}_norm")
        return self.feed_forward(x, prefix)

    def _attend(self, query: Value, memory: KeyValue) -> Value:
        return cross_attention(self.graph, query, memory, self.source_lengths, self.heads)

    def _logits(self, x: Value) -> Value:
        name = "embedding" if self.config.tied_embeddings else "output"
        weight = self.layers.weights.take(
            f"{name}.weight", self.config.vocab_size, self.config.d_model
        )
        return self.layers.project(x, name, weight)


class _StepAttention(_Step):
    """The step with the attention of all decoder layers' heads, computed a second time beside the
    operator that mixes the values, so that everything else stays what it is without.
    """

    def build(self) -> None:
        self.scores: list[Value] = []
        super().build()
        op, graph = self.graph.op, self.graph
        any_head = op.ReduceMax(self.scores[0], graph.ints(1), keepdims=0)  # for its shape
        within = op.Unsqueeze(is_real(graph, any_head, self.source_lengths), graph.ints(1))
        attention = ragged_softmax(graph, op.Concat(*self.scores, axis=1), within)
        num_heads = self.config.decoder_layers * self.config.num_heads
        graph.output("attention", attention, "float32", (num_heads, SOURCE))

    def _attend(self, query: Value, memory: KeyValue) -> Value:
        self.scores.append(attention_scores(self.graph, query, memory[0], self.heads))
        return super()._attend(query, memory)


def _alignment_heads(config: TransformerConfig) -> tuple[int, ...]:
    """Those of the last decoder layer, as in Marian and CTranslate2. In the shipped model 90 % of
    the words that a sentence and its translation share look back at themselves (88 % by all heads,
    84 % by those of the first layer).
    """
    first = (config.decoder_layers - 1) * config.num_heads
    return tuple(range(first, first + config.num_heads))


def sinusoids(num_positions: int, dim: int) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/dim)), PE(pos, 2i+1) = cos (Vaswani et al. 2017, 3.5)."""
    rate = np.exp(np.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    angle = np.arange(num_positions)[:, None] * rate
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(num_positions, dim)
