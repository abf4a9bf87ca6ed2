"""fairseq's `fconv`, the code that ConvS2S was published with.

Gehring, Auli, Grangier, Yarats and Dauphin 2017; fairseq/models/fconv.py. It differs from the
paper, which `convs2s` follows: a layer attends before its input is added, queries and values are
sums of two that vary as much as one, each layer has its own size, and some layers may not attend.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.architectures.fconv.config import AttentiveConvolution, FConvConfig
from models.layers.basic import Dropout
from models.layers.convolutions import (
    HALF_VARIANCE,
    ConvolutionalState,
    ConvolutionalTranslator,
    GatedConvolution,
    positions_table,
    scaled_linear,
)


class ResidualConvolution(nn.Module):
    """A convolution that adds its input, projected if the sizes differ."""

    def __init__(self, in_dim: int, dim: int, kernel_size: int, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(dim, kernel_size, dropout, in_dim)
        self.projection = nn.Identity() if in_dim == dim else scaled_linear(in_dim, dim)

    def add(self, attended: Tensor, x: Tensor) -> Tensor:
        return (attended + self.projection(x)) * HALF_VARIANCE


class FConvEncoder(nn.Module):
    """Position vectors of the source, and layers that read both sides of a word."""

    def __init__(self, config: FConvConfig) -> None:
        super().__init__()
        dims = [config.encoder[0].dim, *(layer.dim for layer in config.encoder)]
        self.dropout = Dropout(config.dropout)
        self.positions = positions_table(config.max_source_tokens, config.embedding_dim)
        self.input = scaled_linear(config.embedding_dim, dims[0], variance=1 - config.dropout)
        self.layers = nn.ModuleList(
            ResidualConvolution(in_dim, layer.dim, layer.kernel_size, config.dropout)
            for in_dim, layer in zip(dims, config.encoder, strict=False)
        )
        self.output = scaled_linear(dims[-1], config.embedding_dim)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Return z [batch, source, embedding_dim] of embedded words, as large, and a mask [batch,
        source].

        Beyond a row's end every layer reads zeros, as it does before the beginning.
        """
        x, is_real = self.input(embedded), mask[..., None]
        for layer in self.layers:
            size = layer.convolution.kernel_size
            padded = pad(self.dropout(x) * is_real, (0, 0, (size - 1) // 2, size // 2))
            x = layer.add(layer.convolution(padded), x)
        return self.output(x)


class FconvDecoderLayer(ResidualConvolution):
    """Convolves a word and those before it, and attends if the layer does."""

    def __init__(self, in_dim: int, layer: AttentiveConvolution, config: FConvConfig) -> None:
        super().__init__(in_dim, layer.dim, layer.kernel_size, config.dropout)
        self.dropout, self.attends = Dropout(config.dropout), layer.attends
        if layer.attends:
            self.query = scaled_linear(layer.dim, config.embedding_dim)
            self.output = scaled_linear(config.embedding_dim, layer.dim)

    def forward(
        self, x: Tensor, embedded: Tensor, window: Tensor, state: ConvolutionalState
    ) -> tuple[Tensor, Tensor]:
        """Read x [batch, new, in_dim] after the inputs in `window`. Return the output and the next
        window.
        """
        inputs = torch.cat([window, self.dropout(x)], 1)
        hidden = self.convolution(inputs)
        if self.attends:
            query = (self.query(hidden) + embedded) * HALF_VARIANCE
            hidden = (self.output(state.attend(query)) + hidden) * HALF_VARIANCE
        return self.add(hidden, x), inputs[:, x.shape[1] :]


class FconvDecoder(nn.Module):
    """Position vectors of the target, layers, and the linear layers before and after them."""

    def __init__(self, config: FConvConfig) -> None:
        super().__init__()
        dims = [config.decoder[0].dim, *(layer.dim for layer in config.decoder)]
        self.positions = positions_table(config.max_target_tokens, config.embedding_dim)
        self.input = scaled_linear(config.embedding_dim, dims[0], variance=1 - config.dropout)
        self.layers = nn.ModuleList(
            FconvDecoderLayer(in_dim, layer, config)
            for in_dim, layer in zip(dims, config.decoder, strict=False)
        )
        # Attention and sums make values smaller: this makes readouts as large as in convs2s.
        self.output = scaled_linear(dims[-1], config.readout_dim, variance=4.0)
        self.window_shapes = [
            (layer.kernel_size - 1, dim) for layer, dim in zip(config.decoder, dims, strict=False)
        ]


class FConv(ConvolutionalTranslator):
    """Attends in the layers that have attention."""

    config: FConvConfig

    def __init__(self, config: FConvConfig) -> None:
        sizes = config.embedding_dim, config.readout_dim, config.source_vocabulary
        super().__init__(config, *sizes, config.dropout)
        self.encoder = FConvEncoder(config)
        self.decoder = FconvDecoder(config)

    def encode_source(self, embedded: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
        keys = self.encoder(embedded, is_real)
        return keys, (keys + embedded) * HALF_VARIANCE
