"""Graphs of decoder-only language models: `step`, for prompts and single tokens, and on the CPU
`verify`, which scores several next tokens of a row at once, to the bit as `step` scores them one by
one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Generic, TypeVar

from export.graph.model import TARGETS, ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import AttentionSizes, self_attention
from export.layers.basic import Layers
from export.layers.memory import AttentionOutputs, DecoderAttentionWeights
from export.layers.vocabulary import VocabularyGraph
from models.configs.transformer import DecoderOnlyConfig
from serving.bundle.manifest import (
    POSITIONS,
    STEP_ATTENTION,
    VERIFY,
    AttentionKind,
    Limits,
    Precision,
    StateKind,
    StateSpec,
)

NUM_VERIFIED = 4  # tokens of a row that are scored at once

Config = TypeVar("Config", bound=DecoderOnlyConfig)


class DecoderOnlyGraph(ABC, Generic[Config]):
    """One graph of a decoder-only model. Subclasses define positions, norms, the feed-forward
    network and biases.
    """

    has_qkv_bias = False
    has_mixing_bias = False  # after attention
    has_output_bias = False  # of the vocabulary's logits, where its tables are not tied
    embedding_scale = 1.0
    logit_cap: float | None = None

    def __init__(self, config: Config, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.attention_outputs = AttentionOutputs(layers.graph, num_tokens="tokens")
        self.weights_of: Callable[[AttentionSizes], DecoderAttentionWeights] | None = None
        has_bias = self.has_output_bias and not config.tied_embeddings
        self.words = VocabularyGraph(
            layers,
            config,
            (config.d_model, config.d_model),
            scale=self.embedding_scale,
            bias="output.bias" if has_bias else None,
        )
        self._heads: dict[int, AttentionSizes] = {}

    def layer_heads(self, layer: int) -> AttentionSizes:
        """Return the sizes of one layer's attention, whose tables are written at the first call."""
        if layer not in self._heads:
            self._heads[layer] = self.heads_of(layer)
        return self._heads[layer]

    def layer_states(self, layer: int) -> list[StateSpec]:
        """Return the keys and values of one layer."""
        dtype = self.layers.weights.cache_dtype
        return self.layer_heads(layer).states("self", StateKind.APPEND, layer, dtype)

    @abstractmethod
    def heads_of(self, layer: int) -> AttentionSizes:
        """Return the sizes of one layer's attention."""

    @abstractmethod
    def feed_forward(self, x: Value, name: str) -> Value:
        """Return the feed-forward network's output, without the sum, for normalised x [batch,
        tokens, d_model].
        """

    @abstractmethod
    def norm(self, x: Value, name: str) -> Value:
        """Normalise x [batch, tokens or none, d_model] by the weights ``name``."""

    def read_positions(self, ids: Value, past_lengths: Value) -> None:
        """Compute what layers need of the positions of ids [batch, tokens] after ``past_lengths``
        positions.
        """

    def embed(self, ids: Value, past_lengths: Value) -> Value:
        """Return the first layer's input for ids [batch, tokens] after ``past_lengths``
        positions.
        """
        return self.words.embed(ids)

    def project_heads(self, x: Value, name: str, heads: AttentionSizes) -> Value:
        """Return queries, keys and values [batch, tokens, all], side by side, of normalised x."""
        return self.layers.linear(
            x,
            [f"{name}.{part}" for part in ("query", "key", "value")],
            self.config.d_model,
            [heads.trained_query_dim, heads.trained_kv_dim, heads.trained_kv_dim],
            bias=self.has_qkv_bias,
            into=heads.layout,
        )

    def normalise_heads(self, qkv: Value, name: str, heads: AttentionSizes) -> Value:
        """Return queries, keys and values [batch, tokens, all], side by side, as attention reads
        them.
        """
        return qkv

    def block(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """Return one layer's output with its residual sums, x [batch, tokens, d_model].
        total_lengths: as in `attend`.
        """
        name = f"layers.{layer}"
        x = x + self.attend(x, layer, total_lengths)
        normed = self.norm(x, f"{name}.feed_forward_norm")
        return x + self.feed_forward(normed, f"{name}.feed_forward")

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs. Those for devices choose one token at a time. If the graphs are to tell
        how large inputs are, they are the parts of `step` that run one after the other, so that no
        more than one layer is in memory: `embed`, those of the layers, and `output`.
        """

        def part(name: str) -> "DecoderOnlyGraph[Config]":
            return cls(config, Layers(GraphWriter(name), weights, precision, in_blocks=True))

        limits = Limits(max_source_tokens=None, max_target_tokens=config.context_length)
        if weights.outliers is None:
            numbers = range(config.num_layers)
            names = ["embed", *(f"layers.{number}" for number in numbers), "output"]
            first, *layers, last = parts = [part(name) for name in names]
            first.write_embed()
            for number, layer in zip(numbers, layers, strict=True):
                layer.write_layer(number)
            last.write_output()
            return ExportedModel(tuple(part.graph for part in parts), (), limits)
        step = part("step")
        step.write_step()
        graphs = [step.graph]
        states = tuple(chain(*(step.layer_states(layer) for layer in range(config.num_layers))))
        step_attention = part(STEP_ATTENTION)
        step_attention.write_step()
        graphs.append(step_attention.graph)
        if not TARGETS[precision].is_cuda:
            verify = part(VERIFY)
            verify.write_verify()
            graphs.append(verify.graph)
        shapes = step_attention.attention_outputs.shapes
        return ExportedModel(tuple(graphs), states, limits, attention=shapes)

    def write_step(self) -> None:
        """Score what follows the last of a row's tokens."""
        graph = self.graph
        ids, past_lengths = self._token_inputs("tokens")
        total_lengths = graph.input("total_lengths", "int32", ())
        if self.attention_outputs.is_on:
            attended = self.attention_outputs.num_attended()
            self.weights_of = partial(DecoderAttentionWeights, past_lengths, attended)
        x = self._run(ids, past_lengths, [total_lengths])
        self.attention_outputs.finish(AttentionKind.DECODER, self.layer_heads(0).num_heads)
        x = self.layers.last_position(x, past_lengths, total_lengths)
        self.words.choose(self.norm(x, "norm"), self.logit_cap)

    def write_embed(self) -> None:
        """Write the first layer's input, `x`."""
        ids, past_lengths = self._token_inputs("tokens")
        self.read_positions(ids, past_lengths)
        self._output_x(self.embed(ids, past_lengths))

    def write_layer(self, layer: int) -> None:
        """Write the output `x` of one layer for the input `x`."""
        ids, past_lengths = self._token_inputs("tokens")
        total_lengths = self.graph.input("total_lengths", "int32", ())
        self.read_positions(ids, past_lengths)
        self._output_x(self.block(self._input_x(), layer, [total_lengths]))

    def write_output(self) -> None:
        """Write how large the inputs of the output layer are, for the last layer's output `x`."""
        self.words.observe(self.norm(self._input_x(), "norm"))

    def _input_x(self) -> Value:
        return self.graph.input("x", self.layers.dtype, ("tokens", self.config.d_model))

    def _output_x(self, x: Value) -> None:
        self.graph.output("next_x", x, x.dtype, ("tokens", self.config.d_model))

    def _token_inputs(self, num_tokens: str | int) -> tuple[Value, Value]:
        """Declare ids [batch, tokens], and the number of positions before them."""
        ids = self.graph.input("ids", "int64", (num_tokens,))
        return ids, self.graph.input("past_lengths", "int32", ())

    def write_verify(self) -> None:
        """Score what follows each of a row's tokens. They may go beyond the last position; keys and
        values there are never read.
        """
        graph, config = self.graph, self.config
        ids, past_lengths = self._token_inputs(NUM_VERIFIED)
        capacity = graph.constant(config.context_length, "int32")
        totals = [(past_lengths + (1 + i)).minimum(capacity) for i in range(NUM_VERIFIED)]
        x = self.norm(self._run(ids, past_lengths, totals), "norm")
        self.words.choose(x.reshape(-1, config.d_model), self.logit_cap, rows=POSITIONS)

    def attend(self, x: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """Return the attention's output for x, which is normalised first.

        total_lengths: one for all tokens together, or one for each token. The operator's bits
        depend on how many tokens it is given: to have those of single tokens it must be given
        single tokens.
        """
        heads, name = self.layer_heads(layer), f"layers.{layer}.attention"
        qkv = self.project_heads(self.norm(x, f"{name}_norm"), name, heads)
        return self.layers.linear(
            self._attend_by_parts(self.normalise_heads(qkv, name, heads), layer, total_lengths),
            [f"{name}.output"],
            heads.num_heads * heads.output_layout.size,
            [self.config.d_model],
            bias=self.has_mixing_bias,
            out_of=heads.output_layout,
        )

    def _run(self, ids: Value, past_lengths: Value, total_lengths: Sequence[Value]) -> Value:
        """Return the output of all layers: [batch, tokens, d_model]."""
        self.read_positions(ids, past_lengths)
        x = self.embed(ids, past_lengths)
        for layer in range(self.config.num_layers):
            x = self.block(x, layer, total_lengths)
        return x

    def _attend_by_parts(self, qkv: Value, layer: int, total_lengths: Sequence[Value]) -> Value:
        """Attend part by part. Each part's keys and values are an output of the graph. That way
        they are updated in place, as the engine binds all of them to one buffer.
        """
        graph, heads, states = self.graph, self.layer_heads(layer), self.layer_states(layer)
        capacity, num_parts = self.config.context_length, len(total_lengths)
        parts = _single_tokens(qkv, num_parts) if num_parts > 1 else [qkv]
        past, next_states = [graph.state_input(state) for state in states], []
        for i, (part, total) in enumerate(zip(parts, total_lengths, strict=True)):
            key, value = past
            mixed, *past = self_attention(part, (key, value), total, capacity, heads)
            next_states.append(mixed)
            if self.weights_of is not None:
                weights = self.weights_of(heads).weights(part, past[0])
                self.attention_outputs.add(AttentionKind.DECODER, weights)
            for state, after in zip(states, past, strict=True):
                suffix = "" if i + 1 == num_parts else f".{i}"
                graph.output(f"{state.name}.next{suffix}", after, state.dtype, state.shape)
        return graph.op.Concat(*next_states, axis=1) if num_parts > 1 else next_states[0]


def _single_tokens(x: Value, count: int) -> list[Value]:
    """Split [batch, tokens, dim] into [batch, 1, dim] each."""
    return list(x.graph.op.Split(x, axis=1, num_outputs=count, _outputs=count))
