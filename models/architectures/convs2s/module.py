"""Convolves and attends only: ConvS2S (Gehring, Auli, Grangier, Yarats and Dauphin 2017).

Scaling and initial weights are those of the paper's 3.4 and 3.5. Weight normalisation is left
out: it is another parametrisation of the same model, made for plain gradient descent, and Muon
gives every matrix an update of the same size by itself.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.architectures.convs2s.config import ConvS2SConfig
from models.batch import length_mask
from models.contract import State, Translator
from models.layers.convolutions import (
    HALF_VARIANCE,
    GatedConvolution,
    initialise_words,
    positions_table,
    scaled_linear,
)
from models.layers.dropout import Dropout
from models.layers.vocabulary import Vocabulary


@dataclass(frozen=True)
class ConvS2SState(State):
    """Holds the encoded source, and what the decoder's convolutions still see of the target."""

    keys: Tensor  # z_j [batch, source, embedding_dim]
    values: Tensor  # z_j + e_j, scaled, as large
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    windows: tuple[Tensor, ...]  # of every block [batch, kernel - 1, hidden_dim]
    num_read: int  # tokens of the target


class ConvolutionalEncoder(nn.Module):
    """Holds position vectors of the source, and blocks that look at both sides of a word."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        dim, kernel_size = config.hidden_dim, config.encoder_kernel_size
        self.margin = kernel_size // 2
        self.dropout = Dropout(config.dropout)
        self.positions = positions_table(config.max_source_tokens, config.embedding_dim)
        self.input = scaled_linear(config.embedding_dim, dim, variance=1 - config.dropout)
        self.blocks = nn.ModuleList(
            GatedConvolution(dim, kernel_size, config.dropout) for _ in range(config.encoder_layers)
        )
        self.output = scaled_linear(dim, config.embedding_dim)

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Encode [batch, source, embedding_dim], mask [batch, source] -> z of the same shape.

        Beyond a row's end every block reads zeros, as it does before the beginning.
        """
        x, is_real = self.input(embedded), mask[..., None]
        for block in self.blocks:
            padded = pad(self.dropout(x) * is_real, (0, 0, self.margin, self.margin))
            x = (x + block(padded)) * HALF_VARIANCE
        return self.output(x)


class MultiStepAttention(nn.Module):
    """Computes d_i = W_d h_i + b_d + g_i, a_ij = softmax_j(d_i . z_j), and
    c_i = sum_j a_ij (z_j + e_j) (equations 1 and 2), mapped to the size of h_i.
    """

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.query = scaled_linear(config.hidden_dim, config.embedding_dim)
        self.output = scaled_linear(config.embedding_dim, config.hidden_dim)

    def forward(self, hidden: Tensor, embedded: Tensor, state: ConvS2SState) -> Tensor:
        """Attend with hidden [batch, target, hidden_dim] and g [batch, target, embedding_dim]."""
        query = self.query(hidden) + embedded
        scores = query @ state.keys.transpose(1, 2)
        weights = scores.masked_fill(~state.is_real[:, None], float("-inf")).softmax(-1)
        return self.output(weights @ state.values)


class DecoderBlock(nn.Module):
    """Convolves this word and those before it, then attends."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(
            config.hidden_dim, config.decoder_kernel_size, config.dropout
        )
        self.attention = MultiStepAttention(config)

    def forward(
        self, x: Tensor, embedded: Tensor, window: Tensor, state: ConvS2SState
    ) -> tuple[Tensor, Tensor]:
        """Read x [batch, new, hidden_dim] after the inputs in `window`: the output, as large, and
        the window after it.
        """
        inputs = torch.cat([window, self.dropout(x)], 1)
        hidden = (x + self.convolution(inputs)) * HALF_VARIANCE
        hidden = (hidden + self.attention(hidden, embedded, state)) * HALF_VARIANCE
        return hidden, inputs[:, x.shape[1] :]


class ConvolutionalDecoder(nn.Module):
    """Holds position vectors of the target, blocks, and the way in and out of them."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.positions = positions_table(config.max_target_tokens, config.embedding_dim)
        self.input = scaled_linear(config.embedding_dim, dim, variance=1 - config.dropout)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        self.output = scaled_linear(dim, config.embedding_dim)


class ConvS2S(Vocabulary, Translator[ConvS2SState]):
    """Attends in every block of the decoder."""

    config: ConvS2SConfig

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__(config, config.embedding_dim, source_size=config.vocab_size, has_bias=True)
        self.dropout = Dropout(config.dropout)
        self.apply(initialise_words)
        self.encoder = ConvolutionalEncoder(config)
        self.decoder = ConvolutionalDecoder(config)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> ConvS2SState:
        """Scale values by m sqrt(1/m), as a mean over m words varies 1/m as much as one of them.

        As every decoder layer attends, the encoder's gradient is divided by their number, the
        embeddings' not (3.4).
        """
        is_real = length_mask(source_lengths, source_ids.shape[1])
        positions = self.encoder.positions[: source_ids.shape[1]]
        embedded = self.dropout(self.embed_source(source_ids) + positions)
        keys = self.encoder(embedded, is_real)
        if keys.requires_grad:
            keys.register_hook(lambda gradient: gradient / self.config.decoder_layers)
        values = (keys + embedded) * source_lengths.to(embedded.dtype).sqrt()[:, None, None]
        window = keys.new_zeros(
            len(keys), self.config.decoder_kernel_size - 1, self.config.hidden_dim
        )
        windows = (window,) * self.config.decoder_layers
        return ConvS2SState(keys, values, is_real, windows, num_read=0)

    def read(self, ids: Tensor, state: ConvS2SState) -> tuple[Tensor, ConvS2SState]:
        start, end = state.num_read, state.num_read + ids.shape[1]
        embedded = self.dropout(self.embed(ids) + self.decoder.positions[start:end])
        x, windows = self.decoder.input(embedded), []
        for block, window in zip(self.decoder.blocks, state.windows, strict=True):
            x, window = block(x, embedded, window, state)
            windows.append(window)
        readout = self.dropout(self.decoder.output(x))
        return readout, replace(state, windows=tuple(windows), num_read=end)
