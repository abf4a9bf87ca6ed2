"""The graph `step` of decoder-only language models, for prompts and single tokens."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Generic, TypeVar

from export.graph.model import ExportedModel, Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import AttentionSizes, self_attention
from export.layers.basic import Layers
from export.layers.memory import AttentionOutputs, DecoderAttentionWeights
from export.layers.vocabulary import VocabularyGraph
from models.configs.transformer import DecoderOnlyConfig
from serving.bundle.manifest import (
    STEP_ATTENTION,
    AttentionKind,
    Limits,
    Precision,
    StateKind,
    StateSpec,
)

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

    def block(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """Return one layer's output with its residual sums, x [batch, tokens, d_model]."""
        name = f"layers.{layer}"
        x = x + self.attend(x, layer, total_lengths)
        normed = self.norm(x, f"{name}.feed_forward_norm")
        return x + self.feed_forward(normed, f"{name}.feed_forward")

    @classmethod
    def build(cls, config: Config, weights: Weights, precision: Precision) -> ExportedModel:
        """Write all graphs. If they are to tell how large inputs are, they are the parts of `step`
        that run one after the other, so that no more than one layer is in memory: `embed`, those of
        the layers, and `output`.
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
        states = tuple(chain(*(step.layer_states(layer) for layer in range(config.num_layers))))
        step_attention = part(STEP_ATTENTION)
        step_attention.write_step()
        graphs = step.graph, step_attention.graph
        shapes = step_attention.attention_outputs.shapes
        return ExportedModel(graphs, states, limits, attention=shapes)

    def write_step(self) -> None:
        """Score what follows the last of a row's tokens."""
        ids, past_lengths = self._token_inputs()
        total_lengths = self.graph.input("total_lengths", "int32", ())
        if self.attention_outputs.is_on:
            attended = self.attention_outputs.num_attended()
            self.weights_of = partial(DecoderAttentionWeights, past_lengths, attended)
        self.read_positions(ids, past_lengths)
        x = self.embed(ids, past_lengths)
        for layer in range(self.config.num_layers):
            x = self.block(x, layer, total_lengths)
        self.attention_outputs.finish(AttentionKind.DECODER, self.layer_heads(0).num_heads)
        x = self.layers.last_position(x, past_lengths, total_lengths)
        self.words.choose(self.norm(x, "norm"), self.logit_cap)

    def write_embed(self) -> None:
        """Write the first layer's input, `x`."""
        ids, past_lengths = self._token_inputs()
        self.read_positions(ids, past_lengths)
        self._output_x(self.embed(ids, past_lengths))

    def write_layer(self, layer: int) -> None:
        """Write the output `x` of one layer for the input `x`."""
        ids, past_lengths = self._token_inputs()
        total_lengths = self.graph.input("total_lengths", "int32", ())
        self.read_positions(ids, past_lengths)
        self._output_x(self.block(self._input_x(), layer, total_lengths))

    def write_output(self) -> None:
        """Write how large the inputs of the output layer are, for the last layer's output `x`."""
        self.words.observe(self.norm(self._input_x(), "norm"))

    def _input_x(self) -> Value:
        return self.graph.input("x", self.layers.dtype, ("tokens", self.config.d_model))

    def _output_x(self, x: Value) -> None:
        self.graph.output("next_x", x, x.dtype, ("tokens", self.config.d_model))

    def _token_inputs(self) -> tuple[Value, Value]:
        """Declare ids [batch, tokens], and the number of positions before them."""
        ids = self.graph.input("ids", "int64", ("tokens",))
        return ids, self.graph.input("past_lengths", "int32", ())

    def attend(self, x: Value, layer: int, total_lengths: Value) -> Value:
        """Return the attention's output for x, which is normalised first."""
        heads, name = self.layer_heads(layer), f"layers.{layer}.attention"
        qkv = self.project_heads(self.norm(x, f"{name}_norm"), name, heads)
        return self.layers.linear(
            self._mix_values(self.normalise_heads(qkv, name, heads), layer, total_lengths),
            [f"{name}.output"],
            heads.num_heads * heads.output_layout.size,
            [self.config.d_model],
            bias=self.has_mixing_bias,
            out_of=heads.output_layout,
        )

    def _mix_values(self, qkv: Value, layer: int, total_lengths: Value) -> Value:
        """Return the sums of values that attention has weighted, and put out the next keys and
        values.
        """
        heads, (key_state, value_state) = self.layer_heads(layer), self.layer_states(layer)
        past = self.graph.state_input(key_state), self.graph.state_input(value_state)
        mixed, keys, values = self_attention(
            qkv, past, total_lengths, self.config.context_length, heads
        )
        if self.weights_of is not None:
            weights = self.weights_of(heads).weights(qkv, keys)
            self.attention_outputs.add(AttentionKind.DECODER, weights)
        self.graph.next_state(key_state, keys)
        self.graph.next_state(value_state, values)
        return mixed
