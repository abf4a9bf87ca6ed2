"""Decoder-only language models: one step graph, for prompts and single tokens, and on the CPU one
that scores several next tokens of a row at once, to the bit as the step graph scores them one by
one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from export.families.language_models.language import language_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import Heads, self_attention
from export.layers.basic import DTYPES, Layers
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from serving.bundle.manifest import POSITIONS, VERIFY, Precision, StateKind, StateSpec

NUM_VERIFIED = 4  # tokens of a row that are scored at once


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

    def block(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """One layer with its residual sums, x [batch, tokens, d_model]; `attend` says of which
        lengths.
        """
        op, name = self.graph.op, f"layers.{layer}"
        x = op.Add(x, self.attend(x, layer, total_lengths))
        normed = self.norm(x, f"{name}.feed_forward_norm")
        return op.Add(x, self.feed_forward(normed, f"{name}.feed_forward"))

    def write_step(self) -> None:
        """Score what follows the last of a row's tokens."""
        graph, layers = self.graph, self.layers
        ids = graph.input("ids", "int64", ("tokens",))
        past_lengths = graph.input("past_lengths", "int32", ())
        total_lengths = graph.input("total_lengths", "int32", ())
        x = self._run(ids, past_lengths, [total_lengths])
        x = layers.last_position(x, past_lengths, total_lengths)
        layers.choose(self.logits(self.norm(x, "norm")), self.config.vocab_size)

    def write_verify(self) -> None:
        """Score what follows each of a row's tokens. They may go beyond the last position, whose
        keys and values nobody reads any more.
        """
        op, graph, layers, config = self.graph.op, self.graph, self.layers, self.config
        ids = graph.input("ids", "int64", (NUM_VERIFIED,))
        past_lengths = graph.input("past_lengths", "int32", ())
        capacity = graph.constant(config.context_length, "int32")
        ends = (graph.constant(1 + i, "int32") for i in range(NUM_VERIFIED))
        totals = [op.Min(op.Add(past_lengths, end), capacity) for end in ends]
        x = self.norm(self._run(ids, past_lengths, totals), "norm")
        flat = op.Reshape(x, graph.ints(-1, config.d_model))
        layers.choose(self.logits(flat), config.vocab_size, rows=POSITIONS)

    def attend(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """What attention says of x, which is normalised first.

        total_lengths: one for all tokens together, or one for each token. The operator's bits
        depend on how many tokens it is given: to be those of single tokens they must come singly.
        """
        heads, name = self.heads[layer], f"layers.{layer}.attention"
        qkv = self.layers.linear(
            self.norm(x, f"{name}_norm"),
            [f"{name}.{part}" for part in ("query", "key", "value")],
            self.config.d_model,
            [heads.trained_query_dim, heads.trained_kv_dim, heads.trained_kv_dim],
            bias=self.has_qkv_bias,
            into=heads.layout,
        )
        return self.layers.linear(
            self._mix(self.normalise_heads(qkv, name, heads), layer, total_lengths),
            [f"{name}.output"],
            heads.trained_query_dim,
            [self.config.d_model],
            bias=self.has_mixing_bias,
            out_of=heads.layout,
        )

    def _run(self, ids: Value, past_lengths: Value, total_lengths: Sequence[Value]) -> Value:
        """All layers, [batch, tokens, d_model]."""
        x = self.embed(ids, past_lengths)
        for layer in range(self.config.num_layers):
            x = self.block(x, layer, total_lengths)
        return x

    def _mix(self, qkv: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """Attend part by part. Each part's keys and values are an output of the graph: it is in
        place then, as the engine binds all of them to one buffer.
        """
        graph, heads, states = self.graph, self.heads[layer], self.states[layer]
        capacity, num_parts = self.config.context_length, len(total_lengths)
        parts = _single_tokens(graph, qkv, num_parts) if num_parts > 1 else [qkv]
        past, found = [graph.state_input(state) for state in states], []
        for i, (part, total) in enumerate(zip(parts, total_lengths, strict=True)):
            key, value = past
            mixed, *past = self_attention(graph, part, (key, value), total, capacity, heads)
            found.append(mixed)
            for state, after in zip(states, past, strict=True):
                suffix = "" if i + 1 == num_parts else f".{i}"
                graph.output(f"{state.name}.next{suffix}", after, state.dtype, state.shape)
        return graph.op.Concat(*found, axis=1) if num_parts > 1 else found[0]

    def logits(self, x: Value) -> Value:
        """x [batch, d_model] -> [batch, vocab]."""
        vocab_size, is_tied = self.config.vocab_size, self.config.tied_embeddings
        name, take = "embedding" if is_tied else "output", self.layers.weights.take
        weight = take(f"{name}.weight", vocab_size, self.config.d_model)
        has_bias = self.has_output_bias and not is_tied
        bias = take(f"{name}.bias", vocab_size) if has_bias else None
        return self.layers.score(x, name, weight, bias)


def decoder_only(
    step: Callable[[Any, Layers], DecoderOnlyStep],
    config: DecoderOnlyConfig,
    weights: Weights,
    precision: Precision,
) -> ExportedModel:
    """Write the graphs of a family, by its step. Those for devices choose one token at a time."""

    def begin(name: str) -> DecoderOnlyStep:
        return step(config, Layers(GraphWriter(name), weights, precision, in_blocks=True))

    one = begin("step")
    one.write_step()
    states = tuple(chain(*one.states))
    if DTYPES[precision] != "float32":
        return language_model(config, (one.graph,), states)
    several = begin(VERIFY)
    several.write_verify()
    return language_model(config, (one.graph, several.graph), states)


def _single_tokens(graph: GraphWriter, x: Value, count: int) -> list[Value]:
    """[batch, tokens, dim] -> [batch, 1, dim] each."""
    return list(graph.op.Split(x, axis=1, num_outputs=count, _outputs=count))
