"""Graphs of fairseq's ConvS2S. A layer attends before its input is added."""

from collections.abc import Callable

from export.graph.writer import Value
from export.layers.basic import Layers
from export.layers.convolutions import (
    HALF_VARIANCE,
    ConvolutionalGraph,
    gated_convolution,
    neighbours,
)
from export.layers.vocabulary import VocabularyGraph
from models.architectures.fconv.config import FConvConfig


class FConvGraph(ConvolutionalGraph[FConvConfig]):
    def __init__(self, config: FConvConfig, layers: Layers) -> None:
        dim, num_source_words = config.embedding_dim, config.source_vocabulary
        dims = dim, config.readout_dim
        words = VocabularyGraph(layers, config, dims, num_source_words=num_source_words)
        in_dims = [config.decoder[0].dim, *(layer.dim for layer in config.decoder)]
        sizes = zip(config.decoder, in_dims, strict=False)
        window_sizes = [(layer.kernel_size - 1) * in_dim for layer, in_dim in sizes]
        super().__init__(config, layers, words, dim, window_sizes)
        self.alignment_heads = tuple(range(sum(layer.attends for layer in config.decoder)))

    @property
    def key_scale(self) -> float:
        return HALF_VARIANCE * super().key_scale  # queries are sums of two

    def values_of(self, memory: Value, embedded: Value) -> Value:
        return (memory + embedded) * HALF_VARIANCE

    def encode_source(self, embedded: Value, within: Value) -> Value:
        in_dim = self.config.encoder[0].dim
        x = self.linear(embedded, "encoder.input", self.dim, in_dim)
        for number, layer in enumerate(self.config.encoder):
            name, size = f"encoder.layers.{number}", layer.kernel_size * in_dim
            windows = neighbours(self.layers, x.where(within, 0), layer.kernel_size)
            convolution = f"{name}.convolution"
            convolved = gated_convolution(self.layers, windows, convolution, size, layer.dim)
            x, in_dim = self._add(convolved, x, name, in_dim, layer.dim), layer.dim
        return self.linear(x, "encoder.output", in_dim, self.dim)

    def decode(self, embedded: Value, attend: Callable[[Value], Value]) -> Value:
        in_dim = self.config.decoder[0].dim
        x = self.linear(embedded, "decoder.input", self.dim, in_dim)
        for number, layer in enumerate(self.config.decoder):
            name, size = f"decoder.layers.{number}", layer.kernel_size * in_dim
            inputs, convolution = self.remember(x, number, in_dim), f"{name}.convolution"
            hidden = gated_convolution(self.layers, inputs, convolution, size, layer.dim)
            if layer.attends:
                query = self.linear(hidden, f"{name}.query", layer.dim, self.dim) + embedded
                output, layout = f"{name}.output", self.heads.layout
                update = self.linear(attend(query), output, self.dim, layer.dim, layout)
                hidden = (update + hidden) * HALF_VARIANCE
            x, in_dim = self._add(hidden, x, name, in_dim, layer.dim), layer.dim
        return self.linear(x, "decoder.output", in_dim, self.config.readout_dim)

    def _add(self, attended: Value, x: Value, name: str, in_dim: int, dim: int) -> Value:
        """Add the input of a residual block, projected where the sizes differ (3.4)."""
        read = x if in_dim == dim else self.linear(x, f"{name}.projection", in_dim, dim)
        return (attended + read) * HALF_VARIANCE


build = FConvGraph.build
