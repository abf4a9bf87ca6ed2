"""Torch layers of convolutional translators (Gehring et al. 2017, 3.2, 3.4 and 3.5)."""

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import glu

from models.batch import length_mask
from models.configs.base import HasWords
from models.contract import DecoderState, TranslationModel
from models.layers.basic import Dropout, VocabularyLayers

HALF_VARIANCE = math.sqrt(0.5)  # a sum of two times this varies as much as each (3.4)


class GatedConvolution(nn.Module):
    """Computes v(W [x_1; ...; x_k] + b), with gated linear units v([A B]) = A * sigma(B) (3.2).

    W is one matrix over the k positions side by side. in_dim: size of the input if it is not `dim`.
    """

    def __init__(
        self, dim: int, kernel_size: int, dropout: float, in_dim: int | None = None
    ) -> None:
        super().__init__()
        self.kernel_size, num_read = kernel_size, kernel_size * (in_dim or dim)
        self.linear = scaled_linear(num_read, 2 * dim, variance=4 * (1 - dropout))

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x [batch, length + kernel_size - 1, in_dim] -> [batch, length, dim]."""
        length = x.shape[1] - self.kernel_size + 1
        windows = [x[:, first : first + length] for first in range(self.kernel_size)]
        return glu(self.linear(torch.cat(windows, -1)), -1)


@dataclass(frozen=True)
class ConvolutionalState(DecoderState):
    """The encoded source, and the last inputs of the decoder's convolutions."""

    keys: Tensor  # z_j [batch, source, embedding_dim]
    values: Tensor  # z_j + e_j, scaled, as large
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    windows: tuple[Tensor, ...]  # of every layer [batch, kernel - 1, its input's size]
    num_read: int  # tokens of the target

    def attend(self, query: Tensor) -> Tensor:
        """Return a context [batch, target, embedding_dim] for each query, as large."""
        scores = query @ self.keys.transpose(1, 2)
        weights = scores.masked_fill(~self.is_real[:, None], float("-inf")).softmax(-1)
        return weights @ self.values


class ConvolutionalTranslator(VocabularyLayers, TranslationModel[ConvolutionalState]):
    """The base of translators made of convolutions and attention.

    `encoder` and `decoder` have position vectors `positions`. `decoder` also has the linear layers
    `input` and `output`, and `kept`: the shapes of its layers' windows.
    """

    encoder: nn.Module
    decoder: nn.Module

    def __init__(
        self, config: HasWords, dim: int, readout_dim: int, source_size: int, dropout: float
    ) -> None:
        super().__init__(
            config, dim, source_size=source_size, output_dim=readout_dim, has_bias=True
        )
        self.dropout = Dropout(dropout)
        self.apply(initialise_words)

    @property
    def decoder_layers(self) -> Iterable[nn.Module]:
        """Layers that return their output and next window, given x, embedded tokens, a window and
        the state.
        """
        return self.decoder.layers

    @abstractmethod
    def encode_source(self, embedded: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys z_j of embedded words e_j, and the values before they are scaled."""

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> ConvolutionalState:
        """Scale values by m sqrt(1/m): a mean over m words varies 1/m as much as one of them."""
        is_real = length_mask(source_lengths, source_ids.shape[1])
        positions = self.encoder.positions[: source_ids.shape[1]]
        embedded = self.dropout(self.embed_source(source_ids) + positions)
        keys, values = self.encode_source(embedded, is_real)
        values = values * source_lengths.to(embedded.dtype).sqrt()[:, None, None]
        windows = tuple(
            keys.new_zeros(len(keys), *window_shape) for window_shape in self.decoder.window_shapes
        )
        return ConvolutionalState(keys, values, is_real, windows, num_read=0)

    def read(self, ids: Tensor, state: ConvolutionalState) -> tuple[Tensor, ConvolutionalState]:
        start, end = state.num_read, state.num_read + ids.shape[1]
        embedded = self.dropout(self.embed(ids) + self.decoder.positions[start:end])
        x, windows = self.decoder.input(embedded), []
        for layer, window in zip(self.decoder_layers, state.windows, strict=True):
            x, window = layer(x, embedded, window, state)
            windows.append(window)
        readout = self.dropout(self.decoder.output(x))
        return readout, replace(state, windows=tuple(windows), num_read=end)


@torch.no_grad()
def initialise_words(module: nn.Module) -> None:
    """Scale embeddings as positions are, and draw an output layer as other layers are."""
    if isinstance(module, nn.Embedding):
        module.weight.mul_(0.1)  # of N(0, 1)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=math.sqrt(1 / module.in_features))


def scaled_linear(in_dim: int, out_dim: int, variance: float = 1.0) -> nn.Linear:
    """Return a linear layer whose outputs vary `variance` times as much as its inputs: weights of
    N(0, sqrt(variance / in_dim)) (3.5).

    A gated linear unit multiplies the variance by a quarter, dropout by one over the share it
    keeps.
    """
    layer = nn.Linear(in_dim, out_dim)
    nn.init.normal_(layer.weight, std=math.sqrt(variance / in_dim))
    nn.init.zeros_(layer.bias)
    return layer


def positions_table(num_rows: int, dim: int) -> nn.Parameter:
    """Return fresh position vectors."""
    return nn.Parameter(torch.randn(num_rows, dim) * 0.1)  # 3.5
