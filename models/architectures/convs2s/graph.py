"""Builds ConvS2S: encode gives the keys and values that all decoder layers share; step keeps of
every layer the inputs that its next convolution will read, side by side.
"""

import math

from export.graph.value import Value, element_type
from export.layers.attention import Heads
from export.layers.basic import HeadLayout, Layers, head_layout
from export.layers.convolutions import gated_convolution, neighbours
from export.layers.memory import CrossAttention, ReadFloats
from export.layers.positions import AddedPositions
from export.layers.ragged import is_real, places
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import VocabularyGraph
from models.architectures.convs2s.config import ConvS2SConfig
from serving.bundle.manifest import SOURCE, StateKind, StateSpec


class ConvS2SGraph(TranslatorGraph[ConvS2SConfig]):
    """Makes keys larger by the square root of their size, as the operator divides by it and the
    paper does not.
    """

    def __init__(self, config: ConvS2SConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        # The last layer's. In a model trained on captions 69 % of the words that a sentence and its
        # translation share look back at themselves most, by 57 % of the weight; 70 % by 34 % in the
        # mean of all layers, which is what the authors' code takes.
        self.alignment_heads = (config.decoder_layers - 1,)
        dim = config.embedding_dim
        self.words = VocabularyGraph(layers, config, (dim, dim))
        self.heads = Heads(1, 1, head_layout(dim), layers.target)
        memory_shape = (1, SOURCE, self.heads.head_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, *memory_shape)
        self.values = layers.state("values", StateKind.CONSTANT, *memory_shape)
        num_kept = (config.decoder_kernel_size - 1) * config.hidden_dim
        self.windows = [
            layers.state(f"window.{layer}", StateKind.REPLACE, 1, num_kept)
            for layer in range(config.decoder_layers if num_kept else 0)
        ]

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.keys, self.values, *self.windows)

    def encode(self, ids: Value, lengths: Value) -> None:
        positions = self.positions("encoder", self.config.max_source_tokens)
        embedded = positions.add_source(self.words.embed_source(ids), places(ids))
        memory = self._encode(embedded, is_real(ids, lengths).unsqueeze(2))
        keys = memory * math.sqrt(self.config.embedding_dim)
        root = self.graph.op.Sqrt(lengths.cast("float32"))  # m sqrt(1/m) (3.4)
        root = self.graph.op.Cast(root, to=element_type(embedded.dtype))
        values = (memory + embedded) * root.unsqueeze(1, 2)
        for state, vectors in ((self.keys, keys), (self.values, values)):
            self.graph.state_output(state, self.as_head(vectors).unsqueeze(1))

    def step(self) -> None:
        graph, config = self.graph, self.config
        past_lengths = graph.input("past_lengths", "int32", ())
        source_lengths = graph.input("source_lengths", "int32", ())
        key_value = graph.state_input(self.keys), graph.state_input(self.values)
        memory = ReadFloats(self.heads, key_value)
        attention = CrossAttention(self.telling, self.heads, source_lengths)
        positions = self.positions("decoder", config.max_target_tokens)
        embedded = positions.add_target(self.words.embed(self.ids), past_lengths)
        x = self.widen(embedded, "decoder.input")
        for layer in range(config.decoder_layers):
            inputs = self._remember(x, layer)
            name, size = f"decoder.blocks.{layer}", config.decoder_kernel_size
            x = self.add(x, self.convolve(inputs, f"{name}.convolution", size))
            query = self.narrow(x, f"{name}.attention.query") + embedded
            found = attention.attend(self.as_head(query), memory)
            x = self.add(x, self.widen(found, f"{name}.attention.output", self.heads.layout))
        self.words.choose(self.narrow(x, "decoder.output").squeeze(1))
        attention.finish()

    def positions(self, stack: str, capacity: int) -> AddedPositions:
        name = f"{stack}.positions"
        table = self.layers.weights.take(name, capacity, self.config.embedding_dim)
        return AddedPositions(self.layers, name, table)

    def widen(self, x: Value, name: str, out_of: HeadLayout | None = None) -> Value:
        """Widen [..., embedding_dim] to [..., hidden_dim]; ``out_of`` heads, if x holds any."""
        sizes = (self.config.embedding_dim, [self.config.hidden_dim])
        return self.layers.linear(x, [name], *sizes, bias=True, out_of=out_of)

    def narrow(self, x: Value, name: str) -> Value:
        """Narrow [..., hidden_dim] to [..., embedding_dim]."""
        config = self.config
        return self.layers.linear(x, [name], config.hidden_dim, [config.embedding_dim], bias=True)

    def as_head(self, x: Value) -> Value:
        """Pad [..., embedding_dim] to [..., head_dim]."""
        missing = self.heads.head_dim - self.config.embedding_dim
        if not missing:
            return x
        return self.layers.pad(x, 0, missing, axes=[-1])

    def convolve(self, windows: Value, name: str, kernel_size: int) -> Value:
        """Convolve windows [..., kernel_size * hidden_dim], inputs side by side, with a gate."""
        dim = self.config.hidden_dim
        return gated_convolution(self.layers, windows, name, kernel_size * dim, dim)

    def add(self, x: Value, update: Value) -> Value:
        """Sum up a residual block, which varies as much as each (3.4)."""
        return (x + update) * math.sqrt(0.5)

    def _encode(self, embedded: Value, within: Value) -> Value:
        """Convolve; beyond a row's end every block reads zeros, as it does before the beginning."""
        kernel_size = self.config.encoder_kernel_size
        x = self.widen(embedded, "encoder.input")
        for layer in range(self.config.encoder_layers):
            windows = neighbours(self.layers, x.where(within, 0), kernel_size)
            x = self.add(x, self.convolve(windows, f"encoder.blocks.{layer}", kernel_size))
        return self.narrow(x, "encoder.output")

    def _remember(self, x: Value, layer: int) -> Value:
        """Return the last inputs and this one; all but the first are the next step's last."""
        if not self.windows:
            return x
        graph, window = self.graph, self.windows[layer]
        inputs: Value = graph.op.Concat(graph.state_input(window), x, axis=-1)
        graph.next_state(window, inputs[:, :, self.config.hidden_dim :])
        return inputs


build = ConvS2SGraph.build
