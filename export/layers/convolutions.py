"""Graphs of convolutional translators (Gehring et al. 2017): gated convolutions as linear layers of
words side by side. `encode` gives the keys and values that all decoder layers share; `step` keeps
of every layer the inputs that its next convolution will read.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from export.graph.writer import Value, element_type
from export.layers.attention import AttentionSizes, is_real, positions_from_zero
from export.layers.basic import HeadLayout, Layers, head_layout
from export.layers.memory import ReadFloats
from export.layers.positions import AddedPositions
from export.layers.translator import TranslatorGraph
from export.layers.vocabulary import VocabularyGraph
from models.configs.base import TranslationModelConfig
from serving.bundle.manifest import SOURCE, AttentionKind, StateKind, StateSpec

HALF_VARIANCE = math.sqrt(0.5)  # a sum of two times this varies as much as each (3.4)

Config = TypeVar("Config", bound=TranslationModelConfig)


class ConvolutionalGraph(TranslatorGraph[Config]):
    """One graph of a convolutional translator.

    dim: of embeddings, keys and values. kept: for each decoder layer how many numbers its next
    convolution reads again.
    """

    def __init__(
        self,
        config: Config,
        layers: Layers,
        words: VocabularyGraph,
        dim: int,
        window_sizes: Sequence[int],
    ) -> None:
        super().__init__(config, layers)
        self.words, self.dim = words, dim
        self.heads = AttentionSizes(1, 1, head_layout(dim), layers.target)
        memory_shape = (1, SOURCE, self.heads.head_dim)
        self.keys = layers.state("keys", StateKind.CONSTANT, *memory_shape)
        self.values = layers.state("values", StateKind.CONSTANT, *memory_shape)
        self.windows = {
            layer: layers.state(f"window.{layer}", StateKind.REPLACE, 1, size)
            for layer, size in enumerate(window_sizes)
            if size
        }

    @property
    def states(self) -> tuple[StateSpec, ...]:
        return (self.keys, self.values, *self.windows.values())

    @property
    def key_scale(self) -> float:
        """The factor of keys: the operator divides scores by the root of their size, the paper does
        not.
        """
        return math.sqrt(self.dim)

    @abstractmethod
    def encode_source(self, embedded: Value, within: Value) -> Value:
        """Convolve a source [batch, source, dim]; what is not `within` must read as zeros."""

    @abstractmethod
    def decode(self, embedded: Value, attend: Callable[[Value], Value]) -> Value:
        """Return the readout [batch, 1, readout_dim] of a token [batch, 1, dim].

        attend: returns what a query [batch, 1, dim] finds in the source [batch, 1, query_dim].
        """

    def values_of(self, memory: Value, embedded: Value) -> Value:
        return memory + embedded

    def encode(self, ids: Value, lengths: Value) -> None:
        positions = self._positions("encoder", self.config.max_source_tokens)
        embedded = positions.add_source(self.words.embed_source(ids), positions_from_zero(ids))
        memory = self.encode_source(embedded, is_real(ids, lengths).unsqueeze(2))
        keys = memory * self.key_scale
        root = self.graph.op.Sqrt(lengths.cast("float32"))  # m sqrt(1/m) (3.4)
        root = self.graph.op.Cast(root, to=element_type(embedded.dtype))
        values = self.values_of(memory, embedded) * root.unsqueeze(1, 2)
        for state, vectors in ((self.keys, keys), (self.values, values)):
            self.graph.state_output(state, self._as_head(vectors).unsqueeze(1))

    def step(self) -> None:
        graph = self.graph
        past_lengths = graph.input("past_lengths", "int32", ())
        source_lengths = graph.input("source_lengths", "int32", ())
        key_value = graph.state_input(self.keys), graph.state_input(self.values)
        memory = ReadFloats(self.heads, key_value)
        attend = self.attention_outputs.attend_to_source
        positions = self._positions("decoder", self.config.max_target_tokens)
        embedded = positions.add_target(self.words.embed(self.ids), past_lengths)
        readout = self.decode(embedded, lambda x: attend(self._as_head(x), memory, source_lengths))
        self.words.choose(readout.squeeze(1))
        self.attention_outputs.finish(AttentionKind.CROSS, self.heads.num_heads)

    def linear(
        self, x: Value, name: str, in_dim: int, out_dim: int, out_of: HeadLayout | None = None
    ) -> Value:
        return self.layers.linear(x, [name], in_dim, [out_dim], bias=True, out_of=out_of)

    def remember(self, x: Value, layer: int, dim: int) -> Value:
        """Return a layer's last inputs beside this one [batch, 1, dim]. All but the first are kept
        for the next step.
        """
        if layer not in self.windows:
            return x
        graph, window = self.graph, self.windows[layer]
        inputs: Value = graph.op.Concat(graph.state_input(window), x, axis=-1)
        graph.next_state(window, inputs[:, :, dim:])
        return inputs

    def _positions(self, stack: str, capacity: int) -> AddedPositions:
        name = f"{stack}.positions"
        return AddedPositions(self.layers, name, self.layers.weights.take(name, capacity, self.dim))

    def _as_head(self, x: Value) -> Value:
        """Pad [..., dim] to [..., head_dim]."""
        missing = self.heads.head_dim - self.dim
        return self.layers.pad(x, 0, missing, axes=[-1]) if missing else x


def neighbours(layers: Layers, x: Value, kernel_size: int) -> Value:
    """Put x [batch, length, dim] beside its neighbours: [batch, length, kernel_size * dim].

    Before the beginning and beyond the end are zeros. If kernel_size is even, there is one more
    neighbour after a word than before it.
    """
    if kernel_size == 1:
        return x
    padded = layers.pad(x, (kernel_size - 1) // 2, kernel_size // 2, axes=[1])
    shifted = [
        padded[:, first : last or None] for first, last in enumerate(range(1 - kernel_size, 1))
    ]
    joined: Value = layers.op.Concat(*shifted, axis=-1)
    return joined


def gated_convolution(
    layers: Layers, windows: Value, name: str, num_inputs: int, dim: int
) -> Value:
    """Convolve windows [..., num_inputs], inputs side by side, with a gate: [..., dim]."""
    both = layers.linear(windows, [f"{name}.linear"], num_inputs, [2 * dim], bias=True)
    values, gates = layers.graph.split(both, [dim, dim])
    return values * gates.sigmoid()
