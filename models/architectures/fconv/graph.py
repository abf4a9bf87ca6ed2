"""Builds fairseq's ConvS2S: encode gives the keys and values that all decoder layers share; step
keeps of every layer the inputs that its next convolution will read, side by side.
"""

import math

from export.graph.value import Value, element_type
from export.layers.attention import Heads
from export.layers.basic import Layers, head_layout
from export.layers.convolutions import gated_convolution, neighbours
from export.layers.memory import CrossAttention, ReadFloats
from export.layers.positions import AddedPositions
from export.layers.ragged import is_real, places
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import VocabularyGraph
from models.architectures.fconv.config import FConvConfig
from serving.bundle.manifest import SOURCE, StateKind, StateSpec

HALF_VARIANCE = math.sqrt(0.5)  # a sum of two times this varies as much as each (3.4)


class FConvGraph(TranslatorGraph[FConvConfig]):
    """Makes keys larger by the square root of their size, as the operator divides by it, and
    smaller by that of two, as queries are there.
    """

    def __init__(self, config: FConvConfig, layers: Layers) -> None:
        super().__init__(config, layers)
        self.alignment_heads = tuple(range(sum(each.attends for each in config.decoder)))
        self.dim = config.embedding_dim
        self.words = VocabularyGraph(
            layers,
            config,
            (self.dim, config.readout_dim),
            num_source_words=config.source_vocabulary,
        )
        self.heads = Heads(1, 1, head_layout(self.dim), layers.target)
        memory_shape = (1, SOURCE, self.heads.head_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, *memory_shape)
        self.values = layers.state("values", StateKind.CONSTANT, *memory_shape)
        dims = [config.decoder[0].dim, *(each.dim for each in config.decoder)]
        self.windows = {
            number: layers.state(
                f"window.{number}", StateKind.REPLACE, 1, (each.kernel_size - 1) * dims[number]
            )
            for number, each in enumerate(config.decoder)
            if each.kernel_size > 1
        }

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.keys, self.values, *self.windows.values())

    def encode(self, ids: Value, lengths: Value) -> None:
        positions = self._positions("encoder", self.config.max_source_tokens)
        embedded = positions.add_source(self.words.embed_source(ids), places(ids))
        memory = self._encode(embedded, is_real(ids, lengths).unsqueeze(2))
        keys = memory * (HALF_VARIANCE * math.sqrt(self.dim))
        root = self.graph.op.Sqrt(lengths.cast("float32"))  # m sqrt(1/m) (3.4)
        root = self.graph.op.Cast(root, to=element_type(embedded.dtype))
        values = (memory + embedded) * HALF_VARIANCE * root.unsqueeze(1, 2)
        for state, vectors in ((self.keys, keys), (self.values, values)):
            self.graph.state_output(state, self._as_head(vectors).unsqueeze(1))

    def step(self) -> None:
        graph, config = self.graph, self.config
        past_lengths = graph.input("past_lengths", "int32", ())
        source_lengths = graph.input("source_lengths", "int32", ())
        memory = ReadFloats(
            self.heads, (graph.state_input(self.keys), graph.state_input(self.values))
        )
        attention = CrossAttention(self.telling, self.heads, source_lengths)
        positions = self._positions("decoder", config.max_target_tokens)
        embedded = positions.add_target(self.words.embed(self.ids), past_lengths)
        in_dim = config.decoder[0].dim
        x = self._map(embedded, "decoder.input", self.dim, in_dim)
        for number, layer in enumerate(config.decoder):
            name, size = f"decoder.layers.{number}", layer.kernel_size * in_dim
            inputs = self._remember(x, number, in_dim)
            convolution = f"{name}.convolution"
            hidden = gated_convolution(self.layers, inputs, convolution, size, layer.dim)
            if layer.attends:
                query = self._map(hidden, f"{name}.query", layer.dim, self.dim) + embedded
                found = attention.attend(self._as_head(query), memory)
                sizes = self.dim, [layer.dim]
                update = self.layers.linear(
                    found, [f"{name}.output"], *sizes, bias=True, out_of=self.heads.layout
                )
                hidden = (update + hidden) * HALF_VARIANCE
            x, in_dim = self._add(hidden, x, name, in_dim, layer.dim), layer.dim
        readout = self._map(x, "decoder.output", in_dim, config.readout_dim)
        self.words.choose(readout.squeeze(1))
        attention.finish()

    def _positions(self, stack: str, capacity: int) -> AddedPositions:
        name = f"{stack}.positions"
        return AddedPositions(self.layers, name, self.layers.weights.take(name, capacity, self.dim))

    def _map(self, x: Value, name: str, in_dim: int, dim: int) -> Value:
        return self.layers.linear(x, [name], in_dim, [dim], bias=True)

    def _as_head(self, x: Value) -> Value:
        """Pad [..., embedding_dim] to [..., head_dim]."""
        missing = self.heads.head_dim - self.dim
        return self.layers.pad(x, 0, missing, axes=[-1]) if missing else x

    def _add(self, found: Value, x: Value, name: str, in_dim: int, dim: int) -> Value:
        """Sum up a residual block, projected where the sizes differ (3.4)."""
        read = x if in_dim == dim else self._map(x, f"{name}.projection", in_dim, dim)
        return (found + read) * HALF_VARIANCE

    def _encode(self, embedded: Value, within: Value) -> Value:
        """Convolve; beyond a row's end every layer reads zeros, as it does before the beginning."""
        in_dim = self.config.encoder[0].dim
        x = self._map(embedded, "encoder.input", self.dim, in_dim)
        for number, layer in enumerate(self.config.encoder):
            name, size = f"encoder.layers.{number}", layer.kernel_size * in_dim
            windows = neighbours(self.layers, x.where(within, 0), layer.kernel_size)
            convolution = f"{name}.convolution"
            found = gated_convolution(self.layers, windows, convolution, size, layer.dim)
            x, in_dim = self._add(found, x, name, in_dim, layer.dim), layer.dim
        return self._map(x, "encoder.output", in_dim, self.dim)

    def _remember(self, x: Value, number: int, in_dim: int) -> Value:
        """Return the last inputs and this one; all but the first are the next step's last."""
        if number not in self.windows:
            return x
        graph, window = self.graph, self.windows[number]
        inputs: Value = graph.op.Concat(graph.state_input(window), x, axis=-1)
        graph.next_state(window, inputs[:, :, in_dim:])
        return inputs


build = FConvGraph.build
