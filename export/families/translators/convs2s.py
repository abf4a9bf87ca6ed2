"""ConvS2S: encode gives the keys and values that all decoder layers share; step keeps of every
layer the inputs that its next convolution will read, side by side.
"""

import math
import sys

from export.families.translators.transformer import CrossAttention, ReportedCrossAttention
from export.families.translators.translation import source_inputs, translation_model
from export.graph.model import ExportedModel
from export.graph.weights import Weights
from export.graph.writer import GraphWriter, Value, element_type
from export.layers.attention import Heads, is_real, places
from export.layers.basic import Layers
from export.layers.heads import HeadLayout, head_layout
from export.layers.memory import ReadFloats, ReadMemory
from export.layers.positions import AddedPositions
from export.layers.vocabulary import choose
from models.configs.translators.convs2s import ConvS2SConfig
from serving.bundle.manifest import SOURCE, Precision, StateKind, StateSpec


def build(config: ConvS2SConfig, weights: Weights, precision: Precision) -> ExportedModel:
    def layers(name: str) -> Layers:
        return Layers(GraphWriter(name), weights, precision)

    encode = _Encode(config, layers("encode"))
    step = _Step(config, layers("step"), CrossAttention)
    step_attention = _Step(config, layers("step_attention"), ReportedCrossAttention)
    encode.build()
    step.build()
    step_attention.build()
    return translation_model(
        config,
        graphs=(encode.graph, step.graph, step_attention.graph),
        states=(step.keys, step.values, *step.windows),
        alignment_heads=_alignment_heads(config),
    )


def _alignment_heads(config: ConvS2SConfig) -> tuple[int, ...]:
    """The last layer's. In a model trained on captions 69 % of the words that a sentence and its
    translation share look back at themselves most, by 57 % of the weight; 70 % by 34 % in the mean
    of all layers, which is what the authors' code takes.
    """
    return (config.decoder_layers - 1,)


class _Part:
    """What both graphs share: the states, embeddings and convolutions.

    Keys are larger by the square root of their size, as the operator divides by it and the paper
    does not.
    """

    def __init__(self, config: ConvS2SConfig, layers: Layers) -> None:
        self.config, self.layers, self.graph = config, layers, layers.graph
        self.heads = Heads(1, 1, head_layout(config.embedding_dim), layers.dtype)
        memory_shape = (1, SOURCE, self.heads.head_dim)
        self.keys = StateSpec("keys", StateKind.CONSTANT, memory_shape, layers.dtype)
        self.values = StateSpec("values", StateKind.CONSTANT, memory_shape, layers.dtype)

    def embed(self, ids: Value, side: str) -> Value:
        name = "embedding" if self.config.tied_embeddings else f"{side}_embedding"
        return self.layers.embed(ids, name, self.config.vocab_size, self.config.embedding_dim)

    def positions(self, stack: str, capacity: int) -> AddedPositions:
        name = f"{stack}.positions"
        table = self.layers.weights.take(name, capacity, self.config.embedding_dim)
        return AddedPositions(self.layers, name, table)

    def widen(self, x: Value, name: str, out_of: HeadLayout | None = None) -> Value:
        """[..., embedding_dim] -> [..., hidden_dim]; ``out_of`` heads, if x holds any."""
        sizes = (self.config.embedding_dim, [self.config.hidden_dim])
        return self.layers.linear(x, [name], *sizes, bias=True, out_of=out_of)

    def narrow(self, x: Value, name: str) -> Value:
        """[..., hidden_dim] -> [..., embedding_dim]."""
        config = self.config
        return self.layers.linear(x, [name], config.hidden_dim, [config.embedding_dim], bias=True)

    def as_head(self, x: Value) -> Value:
        """[..., embedding_dim] -> [..., head_dim]."""
        missing = self.heads.head_dim - self.config.embedding_dim
        if not missing:
            return x
        return self.layers.pad(x, 0, missing, axes=[-1])

    def convolve(self, windows: Value, name: str, kernel_size: int) -> Value:
        """windows [..., kernel_size * hidden_dim], the inputs side by side, gated."""
        dim, op = self.config.hidden_dim, self.graph.op
        both = self.layers.linear(
            windows, [f"{name}.linear"], kernel_size * dim, [2 * dim], bias=True
        )
        values, gates = self.graph.split(both, [dim, dim])
        return op.Mul(values, op.Sigmoid(gates))

    def add(self, x: Value, update: Value) -> Value:
        """The sum of a residual block, which varies as much as each (3.4)."""
        half = self.graph.constant(math.sqrt(0.5), self.layers.dtype)
        return self.graph.op.Mul(self.graph.op.Add(x, update), half)


class _Encode(_Part):
    def build(self) -> None:
        graph, op = self.graph, self.graph.op
        ids, lengths = source_inputs(graph)
        positions = self.positions("encoder", self.config.max_source_tokens)
        embedded = positions.add_source(self.embed(ids, "source"), places(graph, ids))
        within = op.Unsqueeze(is_real(graph, ids, lengths), graph.ints(2))
        memory = self._encode(embedded, within)
        keys = op.Mul(memory, self._number(math.sqrt(self.config.embedding_dim)))
        root = op.Cast(
            op.Sqrt(op.Cast(lengths, to=1)), to=element_type(self.layers.dtype)
        )  # m sqrt(1/m) (3.4)
        values = op.Mul(op.Add(memory, embedded), op.Unsqueeze(root, graph.ints(1, 2)))
        for state, vectors in ((self.keys, keys), (self.values, values)):
            graph.state_output(state, op.Unsqueeze(self.as_head(vectors), graph.ints(1)))

    def _encode(self, embedded: Value, within: Value) -> Value:
        """Beyond a row's end every block reads zeros, as it does before the beginning."""
        kernel_size = self.config.encoder_kernel_size
        x = self.widen(embedded, "encoder.input")
        for layer in range(self.config.encoder_layers):
            real = self.graph.op.Where(within, x, self._number(0))
            windows = self._windows(real, kernel_size)
            x = self.add(x, self.convolve(windows, f"encoder.blocks.{layer}", kernel_size))
        return self.narrow(x, "encoder.output")

    def _windows(self, x: Value, kernel_size: int) -> Value:
        """x [batch, source, dim] and its neighbours: [batch, source, kernel_size * dim]."""
        graph, op, margin = self.graph, self.graph.op, kernel_size // 2
        if kernel_size == 1:
            return x
        padded = self.layers.pad(x, margin, margin, axes=[1])
        shifted = [
            op.Slice(padded, graph.ints(first), graph.ints(last or sys.maxsize), graph.ints(1))
            for first, last in enumerate(range(1 - kernel_size, 1))
        ]
        return op.Concat(*shifted, axis=-1)

    def _number(self, value: float) -> Value:
        return self.graph.constant(value, self.layers.dtype)


class _Step(_Part):
    def __init__(
        self, config: ConvS2SConfig, layers: Layers, cross_attention: type[CrossAttention]
    ) -> None:
        super().__init__(config, layers)
        self._cross_attention = cross_attention
        shape = (1, (config.decoder_kernel_size - 1) * config.hidden_dim)
        num_windows = config.decoder_layers if config.decoder_kernel_size > 1 else 0
        self.windows = [
            StateSpec(f"window.{layer}", StateKind.REPLACE, shape, layers.dtype)
            for layer in range(num_windows)
        ]

    def build(self) -> None:
        graph, config = self.graph, self.config
        ids = graph.input("ids", "int64", (1,))
        past_lengths = graph.input("past_lengths", "int32", ())
        source_lengths = graph.input("source_lengths", "int32", ())
        key_value = graph.state_input(self.keys), graph.state_input(self.values)
        memory = ReadFloats(graph, self.heads, key_value)
        self._attention = self._cross_attention(graph, self.heads, source_lengths)
        positions = self.positions("decoder", config.max_target_tokens)
        embedded = positions.add_target(self.embed(ids, "target"), past_lengths)
        x = self.widen(embedded, "decoder.input")
        for layer in range(config.decoder_layers):
            x = self._layer(x, layer, embedded, memory)
        readout = graph.op.Squeeze(self.narrow(x, "decoder.output"), graph.ints(1))
        choose(self.layers, config, readout, config.embedding_dim)
        self._attention.finish()

    def _layer(self, x: Value, layer: int, embedded: Value, memory: ReadMemory) -> Value:
        """x [batch, 1, hidden_dim] -> the next layer's."""
        name = f"decoder.blocks.{layer}"
        inputs = self._remember(x, layer)
        x = self.add(
            x, self.convolve(inputs, f"{name}.convolution", self.config.decoder_kernel_size)
        )
        query = self.graph.op.Add(self.narrow(x, f"{name}.attention.query"), embedded)
        mixed = self._attention.attend(self.as_head(query), memory)
        return self.add(x, self.widen(mixed, f"{name}.attention.output", self.heads.layout))

    def _remember(self, x: Value, layer: int) -> Value:
        """The last inputs and this one, all but the first of which are the next step's last."""
        if not self.windows:
            return x
        graph, op, window = self.graph, self.graph.op, self.windows[layer]
        inputs = op.Concat(graph.state_input(window), x, axis=-1)
        following = graph.ints(self.config.hidden_dim), graph.ints(sys.maxsize), graph.ints(2)
        graph.next_state(window, op.Slice(inputs, *following))
        return inputs
