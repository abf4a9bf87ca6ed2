"""Graphs of encoder-decoder Transformers: `encode` writes cross-attention's keys and values."""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import chain
from typing import TypeVar

from export.graph.writer import Value
from export.layers.attention import AttentionSizes, SourceTokens, self_attention
from export.layers.basic import Layers, feed_forward, head_layout
from export.layers.memory import (
    DecoderAttentionWeights,
    FloatMemory,
    Int8Memory,
    encoder_attention_weights,
)
from export.layers.positions import positions_of_layers, source_biases, target_biases
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import VocabularyGraph
from models.configs.transformer import BaseTransformerConfig
from serving.bundle.manifest import AttentionKind, StateKind, StateSpec

ENCODER = "encoder."  # what names of the encoder's layers begin with

Config = TypeVar("Config", bound=BaseTransformerConfig)


class BaseTransformerGraph(TranslatorGraph[Config]):
    """One graph of an encoder-decoder Transformer. Subclasses read the target in their own way."""

    past_states: list[list[StateSpec]]  # of every decoder layer

    has_attentive_encoder = True
    logit_cap: float | None = None

    def __init__(self, config: Config, layers: Layers) -> None:
        super().__init__(config, layers)
        # Those of the last decoder layer, as in Marian and CTranslate2. In the shipped model 90 %
        # of the words that a sentence and its translation share attend most to each other (88 % by
        # all heads, 84 % by those of the first layer).
        first = (config.decoder_layers - 1) * config.num_heads
        self.alignment_heads = tuple(range(first, first + config.num_heads))
        self.words = VocabularyGraph(
            layers,
            config,
            (config.d_model, config.d_model),
            scale=config.scale_of_embeddings,
            bias="output_bias" if config.imported.output_bias else None,
            num_source_words=config.source_vocabulary,
        )
        self.heads = self.make_heads()
        self.encoder_heads = self.make_encoder_heads()
        is_int8 = layers.quantiser is not None and not layers.weights.are_quantised
        memory = Int8Memory if is_int8 else FloatMemory
        self.memories = [memory(self.heads, layer) for layer in range(config.decoder_layers)]

    def make_heads(self) -> AttentionSizes:
        """Return the heads of attention to the source."""
        config, layout = self.config, head_layout(self.config.head_size)
        return AttentionSizes(config.num_heads, config.kv_heads, layout, self.layers.target)

    def make_encoder_heads(self) -> AttentionSizes:
        """Return the heads with which the source attends to itself."""
        side = self.config.encoder_side
        if side.num_heads == self.config.num_heads:
            return self.heads
        return AttentionSizes(
            side.num_heads, side.kv_heads, head_layout(side.head_size), self.layers.target
        )

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return tuple(chain(*self.past_states, *(memory.states for memory in self.memories)))

    def open(self) -> None:
        super().open()
        self.past_lengths = self.graph.input("past_lengths", "int32", ())
        self.source_lengths = self.graph.input("source_lengths", "int32", ())
        config = self.config
        self.positions = positions_of_layers(
            self.layers, config, "decoder", config.max_target_tokens
        )

    def encode(self, ids: Value, lengths: Value) -> None:
        """Write keys and values of the source for every decoder layer."""
        tokens = SourceTokens(ids, lengths, self.layers.target)
        self.write_memories(self._encode(ids, lengths, tokens), tokens, self.config.d_model)

    def write_memories(self, encoded: Value, tokens: SourceTokens, dim: int) -> None:
        """Write keys and values of the encoder's output [..., dim]."""
        dims, bias = [self.heads.trained_kv_dim] * 2, self.config.imported.biases
        for layer, memory in enumerate(self.memories):
            names = [f"decoder.layers.{layer}.cross_attention.{part}" for part in ("key", "value")]
            layout = self.heads.layout
            keys_values = self.layers.linear(encoded, names, dim, dims, bias=bias, into=layout)
            memory.write(self.graph, tokens, keys_values)

    def step(self) -> None:
        x = self.begin(self.add_positions(self.words.embed(self.ids)), "decoder")
        for layer in range(self.config.decoder_layers):
            x = self.read_source(self.read_target(x, layer), layer)
        self.attention_outputs.finish(AttentionKind.CROSS, self.heads.num_heads)
        self.attention_outputs.finish(AttentionKind.DECODER, self.heads.num_heads)
        self.words.choose(self.last_token(self.finish(x, "decoder")), self.logit_cap)

    def add_positions(self, embedded: Value) -> Value:
        """Add those of the target to embedded tokens [batch, 1, d_model]."""
        return self.positions[0].add_target(embedded, self.past_lengths)

    def last_token(self, x: Value) -> Value:
        """Return the vector of each row's last token, [batch, d_model]."""
        return x.squeeze(1)

    @abstractmethod
    def read_target(self, x: Value, layer: int) -> Value:
        """Add to x [batch, 1, d_model] what the layer finds in the target so far."""

    def read_source(self, x: Value, layer: int) -> Value:
        """Add to x [batch, 1, d_model] what the layer finds in the source, and apply the
        feed-forward network.
        """
        memory = self.memories[layer].read(self.graph)
        name = f"decoder.layers.{layer}.cross_attention"
        normed = self.before_sublayer(x, f"{name}_norm")
        query = self.project(normed, [f"{name}.query"], [self.heads.trained_query_dim])
        attended = self.attention_outputs.attend_to_source(query, memory, self.source_lengths)
        update = self.join_heads(attended, name)
        x = self.after_sublayer(x, update, f"{name}_norm")
        return self.feed_forward(x, f"decoder.layers.{layer}")

    def begin(self, x: Value, stack: str) -> Value:
        """Return the first layer's input for embedded tokens with their positions."""
        return (
            self._norm(x, f"{stack}.embedding_norm") if self.config.imported.embedding_norm else x
        )

    def before_sublayer(self, x: Value, norm: str) -> Value:
        return self._norm(x, norm) if self.config.norm.place == "pre" else x

    def after_sublayer(self, x: Value, update: Value, norm: str) -> Value:
        x = x + update
        return x if self.config.norm.place == "pre" else self._norm(x, norm)

    def finish(self, x: Value, stack: str) -> Value:
        return self._norm(x, f"{stack}.norm") if self.config.has_final_norm else x

    def queries_keys_values(self, x: Value, name: str) -> Value:
        names = [f"{name}.{part}" for part in ("query", "key", "value")]
        heads = self._heads_of_stack(name)
        query_dim, kv_dim = heads.trained_query_dim, heads.trained_kv_dim
        return self.project(x, names, [query_dim, kv_dim, kv_dim])

    def project(self, x: Value, names: Sequence[str], out_dims: Sequence[int]) -> Value:
        """Project x [..., d_model] to queries, keys or values, side by side."""
        dim, bias = self.config.d_model, self.config.imported.biases
        layout = self._heads_of_stack(names[0]).layout
        return self.layers.linear(x, names, dim, out_dims, bias=bias, into=layout)

    def join_heads(self, x: Value, name: str) -> Value:
        """Project what the heads found [..., query_dim] to [..., d_model]."""
        names, dims = [f"{name}.output"], [self.config.d_model]
        heads = self._heads_of_stack(name)
        bias, into = self.config.imported.biases, heads.trained_query_dim
        return self.layers.linear(x, names, into, dims, bias=bias, out_of=heads.layout)

    def feed_forward(self, x: Value, layer: str) -> Value:
        config, name = self.config, f"{layer}.feed_forward"
        if layer.startswith(ENCODER):
            config = config.encoder_side
        update = feed_forward(
            self.layers,
            self.before_sublayer(x, f"{name}_norm"),
            name,
            (config.d_model, config.ffn_dim),
            config.activation,
            is_gated=config.gated_ffn,
            bias=config.imported.biases,
        )
        return self.after_sublayer(x, update, f"{name}_norm")

    def _heads_of_stack(self, name: str) -> AttentionSizes:
        """Return the heads of the stack that a layer's name begins with."""
        return self.encoder_heads if name.startswith(ENCODER) else self.heads

    def _norm(self, x: Value, name: str) -> Value:
        config, layers = self.config, self.layers
        norm = layers.rms_norm if config.norm.kind == "rms" else layers.layer_norm
        return norm(x, name, config.d_model, config.norm.epsilon)

    def _encode(self, ids: Value, lengths: Value, tokens: SourceTokens) -> Value:
        config = self.config
        positions = positions_of_layers(self.layers, config, "encoder", config.max_source_tokens)
        embedded = self.words.embed_source(tokens.ids)
        x = self.begin(positions[0].add_source(embedded, tokens.positions), "encoder")
        return self.encode_layers(x, tokens, lengths, source_biases(positions, ids))

    def encode_layers(
        self, x: Value, tokens: SourceTokens, lengths: Value, biases: Sequence[Value | None]
    ) -> Value:
        """Return the encoder's output for the first layer's input x. biases: of scores, in each
        layer.
        """
        for layer, bias in enumerate(biases):
            name = f"encoder.layers.{layer}.self_attention"
            normed = self.before_sublayer(x, f"{name}_norm")
            qkv = self.queries_keys_values(normed, name)
            attended, weights = tokens.attend(qkv, self.encoder_heads, bias)
            if self.attention_outputs.is_on:
                if weights is None:
                    apart = tokens.spread(qkv)
                    weights = encoder_attention_weights(apart, lengths, self.encoder_heads, bias)
                self.attention_outputs.add(AttentionKind.ENCODER, weights)
            update = self.join_heads(attended, name)
            x = self.after_sublayer(x, update, f"{name}_norm")
            x = self.feed_forward(x, f"encoder.layers.{layer}")
        self.attention_outputs.finish(AttentionKind.ENCODER, self.encoder_heads.num_heads)
        return self.finish(x, "encoder")


class SelfAttentionGraph(BaseTransformerGraph[Config]):
    """Keeps keys and values of the target so far in place, and appends to them."""

    def __init__(self, config: Config, layers: Layers) -> None:
        super().__init__(config, layers)
        self.past_states = [
            self.heads.states("self", StateKind.APPEND, layer)
            for layer in range(config.decoder_layers)
        ]

    def heads_of(self, layer: int) -> AttentionSizes:
        """Return the heads of a layer's self-attention, of the same sizes."""
        return self.heads

    def open(self) -> None:
        super().open()
        self.total_lengths = self.graph.input("total_lengths", "int32", ())
        self.biases = target_biases(self.positions, self.past_lengths)
        if self.attention_outputs.is_on:
            self.attended = self.attention_outputs.num_attended()

    def read_target(self, x: Value, layer: int) -> Value:
        graph, name = self.graph, f"decoder.layers.{layer}.self_attention"
        key_state, value_state = self.past_states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self.queries_keys_values(self.before_sublayer(x, f"{name}_norm"), name)
        capacity = self.config.max_target_tokens
        heads, bias = self.heads_of(layer), self.biases[layer]
        attended, keys, values = self_attention(
            qkv, past, self.total_lengths, capacity, heads, bias
        )
        if self.attention_outputs.is_on:
            weights_of = DecoderAttentionWeights(self.past_lengths, self.attended, heads, bias)
            self.attention_outputs.add(
                AttentionKind.DECODER, self._weights_if_asked(weights_of, qkv, keys)
            )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        return self.after_sublayer(x, self.join_heads(attended, name), f"{name}_norm")

    def _weights_if_asked(
        self, weights_of: DecoderAttentionWeights, qkv: Value, keys: Value
    ) -> Value:
        """Compute weights only if any are asked for: requests that only want cross-attention do not
        wait for them.
        """
        [weights] = self.graph.branch(
            weights_of.attended > 0,
            "float32",
            lambda: [weights_of.weights(qkv, keys)],
            lambda: [weights_of.none(qkv)],
            1,
        )
        return weights
