"""The encoder-decoder Transformer: encode gives cross keys and values, step appends to its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import chain

from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter, Value
from export.layers.attention import (
    Heads,
    encoder_attention,
    is_real,
    ragged_softmax,
    self_attention,
)
from export.layers.basic import Layers
from export.layers.feed_forward import feed_forward
from export.layers.heads import head_layout
from export.layers.memory import FloatMemory, Int8Memory, ReadMemory, SourceMemory
from export.layers.packing import source_tokens
from export.layers.positions import positions_of
from export.layers.shortlist import choose_tokens
from models.configs.translators.transformer import TransformerConfig, TransformerSizes
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: TransformerConfig, weights: Weights, precision: Precision) -> ExportedModel:
    return build_with(SelfAttentionStep, config, weights, precision)


def build_with(
    kind: type["Step"], config: TransformerSizes, weights: Weights, precision: Precision
) -> ExportedModel:
    """The model whose decoder is a ``kind`` of step."""

    def layers(name: str) -> Layers:
        return Layers(GraphWriter(name), weights, precision)

    encode = _Encode(config, layers("encode"))
    step = kind(config, layers("step"), CrossAttention)
    step_attention = kind(config, layers("step_attention"), ReportedCrossAttention)
    encode.build(step.memories)
    step.build()
    step_attention.build()
    return translation_model(
        config,
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=tuple(chain(*step.past_states, *(each.states for each in step.memories))),
        alignment_heads=_alignment_heads(config),
    )


class CrossAttention:
    """Of all layers of one step graph."""

    def __init__(self, graph: GraphWriter, heads: Heads, source_lengths: Value) -> None:
        self.graph, self.heads, self.source_lengths = graph, heads, source_lengths

    def attend(self, query: Value, memory: ReadMemory) -> Value:
        return memory.attend(query, self.source_lengths)

    def finish(self) -> None:
        """Called when the graph's layers are written."""


class ReportedCrossAttention(CrossAttention):
    """Puts out the attention of all decoder layers' heads, computed a second time beside the
    operator that mixes the values, so that everything else stays what it is without.
    """

    def __init__(self, graph: GraphWriter, heads: Heads, source_lengths: Value) -> None:
        super().__init__(graph, heads, source_lengths)
        self.scores: list[Value] = []

    def attend(self, query: Value, memory: ReadMemory) -> Value:
        self.scores.append(memory.scores(query))
        return super().attend(query, memory)

    def finish(self) -> None:
        op, graph = self.graph.op, self.graph
        any_head = op.ReduceMax(self.scores[0], graph.ints(1), keepdims=0)  # for its shape
        within = op.Unsqueeze(is_real(graph, any_head, self.source_lengths), graph.ints(1))
        attention = ragged_softmax(graph, op.Concat(*self.scores, axis=1), within)
        num_heads = len(self.scores) * self.heads.num_heads
        graph.output("attention", attention, "float32", (num_heads, SOURCE))


class _Stack:
    """What the encoder and the decoder share: residual sublayers with a norm before or after."""

    def __init__(self, config: TransformerSizes, layers: Layers) -> None:
        self.config = config
        self.layers = layers
        self.graph = layers.graph
        layout = head_layout(config.head_size)
        self.heads = Heads(config.num_heads, config.kv_heads, layout, layers.dtype)

    def embed(self, ids: Value, side: str) -> Value:
        """Vectors of ids [...], scaled; their positions are not in them yet."""
        config = self.config
        name = "embedding" if config.tied_embeddings else f"{side}_embedding"
        num_rows = config.source_vocabulary if side == "source" else config.vocab_size
        scale = config.scale_of_embeddings
        return self.layers.embed(ids, name, num_rows, config.d_model, scale)

    def begin(self, x: Value, stack: str) -> Value:
        """Embedded tokens with their positions -> what the first layer reads."""
        return self._norm(x, f"{stack}.embedding_norm") if self.config.embedding_norm else x

    def enter(self, x: Value, norm: str) -> Value:
        return self._norm(x, norm) if self.config.norm == "pre" else x

    def leave(self, x: Value, update: Value, norm: str) -> Value:
        x = self.graph.op.Add(x, update)
        return x if self.config.norm == "pre" else self._norm(x, norm)

    def finish(self, x: Value, stack: str) -> Value:
        return self._norm(x, f"{stack}.norm") if self.config.has_final_norm else x

    def queries_keys_values(self, x: Value, name: str) -> Value:
        names = [f"{name}.{part}" for part in ("query", "key", "value")]
        query_dim, kv_dim = self.heads.trained_query_dim, self.heads.trained_kv_dim
        return self.project(x, names, [query_dim, kv_dim, kv_dim])

    def project(self, x: Value, names: Sequence[str], out_dims: Sequence[int]) -> Value:
        """x [..., d_model] -> queries, keys or values, side by side."""
        dim, bias, layout = self.config.d_model, self.config.biases, self.heads.layout
        return self.layers.linear(x, names, dim, out_dims, bias=bias, into=layout)

    def mix_heads(self, x: Value, name: str) -> Value:
        """What the heads found [..., query_dim] -> [..., d_model]."""
        names, dims, heads = [f"{name}.output"], [self.config.d_model], self.heads
        bias, into = self.config.biases, heads.trained_query_dim
        return self.layers.linear(x, names, into, dims, bias=bias, out_of=heads.layout)

    def feed_forward(self, x: Value, layer: str) -> Value:
        config, name = self.config, f"{layer}.feed_forward"
        update = feed_forward(
            self.layers,
            self.enter(x, f"{name}_norm"),
            name,
            (config.d_model, config.ffn_dim),
            config.activation,
            is_gated=config.gated_ffn,
            bias=config.biases,
        )
        return self.leave(x, update, f"{name}_norm")

    def _norm(self, x: Value, name: str) -> Value:
        config, layers = self.config, self.layers
        norm = layers.rms_norm if config.norm_type == "rms" else layers.layer_norm
        return norm(x, name, config.d_model, config.norm_epsilon)


class _Encode(_Stack):
    def __init__(self, config: TransformerSizes, layers: Layers) -> None:
        super().__init__(config, layers)
        self.ids, self.lengths = source_inputs(self.graph)
        self.tokens = source_tokens(self.graph, self.ids, self.lengths, layers.dtype)

    def build(self, memories: Sequence[SourceMemory]) -> None:
        encoded = self._encode()
        for layer, memory in enumerate(memories):
            names = [f"decoder.layers.{layer}.cross_attention.{part}" for part in ("key", "value")]
            keys_values = self.project(encoded, names, [self.heads.trained_kv_dim] * 2)
            memory.write(self.graph, self.tokens.spread(keys_values))

    def _encode(self) -> Value:
        tokens, limit = self.tokens, self.config.max_source_tokens
        positions = positions_of(self.layers, self.config, "encoder", limit)
        embedded = self.embed(tokens.ids, "source")
        x = self.begin(positions.add_source(embedded, tokens.positions), "encoder")
        bias = positions.source_bias(self.ids)
        for layer in range(self.config.encoder_layers):
            x = self._layer(x, bias, f"encoder.layers.{layer}")
        return self.finish(x, "encoder")

    def _layer(self, x: Value, bias: Value | None, layer: str) -> Value:
        name = f"{layer}.self_attention"
        qkv = self.tokens.spread(self.queries_keys_values(self.enter(x, f"{name}_norm"), name))
        mixed = encoder_attention(self.graph, qkv, self.lengths, self.heads, bias)
        update = self.mix_heads(self.tokens.pack(mixed), name)
        return self.feed_forward(self.leave(x, update, f"{name}_norm"), layer)


class Step(_Stack, ABC):
    """A decoder; how it reads the target so far is for each kind to say."""

    past_states: list[list[StateSpec]]  # of every layer

    def __init__(
        self, config: TransformerSizes, layers: Layers, cross_attention: type[CrossAttention]
    ) -> None:
        super().__init__(config, layers)
        self.ids = self.graph.input("ids", "int64", (1,))
        self.past_lengths = self.graph.input("past_lengths", "int32", ())
        source_lengths = self.graph.input("source_lengths", "int32", ())
        self.cross = cross_attention(self.graph, self.heads, source_lengths)
        self.positions = positions_of(layers, config, "decoder", config.max_target_tokens)
        is_int8 = layers.quantiser is not None and not layers.weights.are_quantised
        memory = Int8Memory if is_int8 else FloatMemory
        self.memories = [memory(self.heads, layer) for layer in range(config.decoder_layers)]

    def build(self) -> None:
        embedded = self.embed(self.ids, "target")
        x = self.begin(self.positions.add_target(embedded, self.past_lengths), "decoder")
        for layer in range(self.config.decoder_layers):
            x = self.read_source(self.read_target(x, layer), layer)
        self.cross.finish()
        self.choose(self.graph.op.Squeeze(self.finish(x, "decoder"), self.graph.ints(1)))

    @abstractmethod
    def read_target(self, x: Value, layer: int) -> Value:
        """x [batch, 1, d_model] with what the layer finds in the target so far."""

    def read_source(self, x: Value, layer: int) -> Value:
        memory = self.memories[layer].read(self.graph)
        name = f"decoder.layers.{layer}.cross_attention"
        entered = self.enter(x, f"{name}_norm")
        query = self.project(entered, [f"{name}.query"], [self.heads.trained_query_dim])
        mixed = self.cross.attend(query, memory)
        update = self.mix_heads(mixed, name)
        return self.feed_forward(self.leave(x, update, f"{name}_norm"), f"decoder.layers.{layer}")

    def choose(self, x: Value) -> None:
        """From the decoder's last vectors [batch, d_model] to the graph's scores of tokens."""
        config, take = self.config, self.layers.weights.take
        name = "embedding" if config.tied_embeddings else "output"
        weight = take(f"{name}.weight", config.vocab_size, config.d_model)
        bias = take("output_bias", config.vocab_size) if config.output_bias else None
        channels = self.layers.weights.channels([f"{name}.weight"], [config.vocab_size])
        choose_tokens(self.layers, config, x, name, weight, bias, channels)


class SelfAttentionStep(Step):
    """Keys and values of the target so far lie in place, and are appended to."""

    def __init__(
        self, config: TransformerSizes, layers: Layers, cross_attention: type[CrossAttention]
    ) -> None:
        super().__init__(config, layers, cross_attention)
        self.past_states = [
            self.heads.states("self", StateKind.APPEND, layer)
            for layer in range(config.decoder_layers)
        ]
        self.total_lengths = self.graph.input("total_lengths", "int32", ())
        self.bias = self.positions.target_bias(self.past_lengths)

    def read_target(self, x: Value, layer: int) -> Value:
        graph, name = self.graph, f"decoder.layers.{layer}.self_attention"
        key_state, value_state = self.past_states[layer]
        past = (graph.state_input(key_state), graph.state_input(value_state))
        qkv = self.queries_keys_values(self.enter(x, f"{name}_norm"), name)
        capacity = self.config.max_target_tokens
        mixed, keys, values = self_attention(
            graph, qkv, past, self.total_lengths, capacity, self.heads, self.bias
        )
        graph.next_state(key_state, keys)
        graph.next_state(value_state, values)
        update = self.mix_heads(mixed, name)
        return self.leave(x, update, f"{name}_norm")


def _alignment_heads(config: TransformerSizes) -> tuple[int, ...]:
    """Those of the last decoder layer, as in Marian and CTranslate2. In the shipped model 90 % of
    the words that a sentence and its translation share look back at themselves (88 % by all heads,
    84 % by those of the first layer).
    """
    first = (config.decoder_layers - 1) * config.num_heads
    return tuple(range(first, first + config.num_heads))
