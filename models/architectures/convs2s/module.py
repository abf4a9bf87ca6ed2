"""ConvS2S (Gehring, Auli, Grangier, Yarats and Dauphin 2017): convolutions and attention only.

Scaling and initial weights are those of the paper's 3.4 and 3.5. Weight normalisation is left out:
it is another parametrisation of the same model, made for plain gradient descent, and Muon gives
every matrix an update of the same size by itself.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from models.architectures.convs2s.config import ConvS2SConfig
from models.layers.basic import Dropout
from models.layers.convolutions import (
    HALF_VARIANCE,
    ConvolutionalState,
    ConvolutionalTranslator,
    GatedConvolution,
    positions_table,
    scaled_linear,
)


class ConvolutionalEncoder(nn.Module):
    """Position vectors of the source, and blocks that read both sides of a word."""

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
        """Return z [batch, source, embedding_dim] of embedded words, as large, and a mask [batch,
        source].

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

    def forward(self, hidden: Tensor, embedded: Tensor, state: ConvolutionalState) -> Tensor:
        """Attend with hidden [batch, target, hidden_dim] and g [batch, target, embedding_dim]."""
        return self.output(state.attend(self.query(hidden) + embedded))


class DecoderBlock(nn.Module):
    """Convolves a word and those before it, then attends."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.dropout)
        self.convolution = GatedConvolution(
            config.hidden_dim, config.decoder_kernel_size, config.dropout
        )
        self.attention = MultiStepAttention(config)

    def forward(
        self, x: Tensor, embedded: Tensor, window: Tensor, state: ConvolutionalState
    ) -> tuple[Tensor, Tensor]:
        """Read x [batch, new, hidden_dim] after the inputs in `window`. Return the output, as
        large, and the next window.
        """
        inputs = torch.cat([window, self.dropout(x)], 1)
        hidden = (x + self.convolution(inputs)) * HALF_VARIANCE
        hidden = (hidden + self.attention(hidden, embedded, state)) * HALF_VARIANCE
        return hidden, inputs[:, x.shape[1] :]


class ConvolutionalDecoder(nn.Module):
    """Position vectors of the target, blocks, and the linear layers before and after them."""

    def __init__(self, config: ConvS2SConfig) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.positions = positions_table(config.max_target_tokens, config.embedding_dim)
        self.input = scaled_linear(config.embedding_dim, dim, variance=1 - config.dropout)
        self.blocks = nn.ModuleList(DecoderBlock(config) for _ in range(config.decoder_layers))
        self.output = scaled_linear(dim, config.embedding_dim)
        self.window_shapes = [(config.decoder_kernel_size - 1, dim)] * config.decoder_layers


class ConvS2S(ConvolutionalTranslator):
    """Attends in every block of the decoder."""

    config: ConvS2SConfig

    def __init__(self, config: ConvS2SConfig) -> None:
        dim = config.embedding_dim
        super().__init__(config, dim, dim, config.vocab_size, config.dropout)
        self.encoder = ConvolutionalEncoder(config)
        self.decoder = ConvolutionalDecoder(config)

    @property
    def decoder_layers(self) -> nn.ModuleList:
        return self.decoder.blocks

    def encode_source(self, embedded: Tensor, is_real: Tensor) -> tuple[Tensor, Tensor]:
        """Divide the encoder's gradient by the number of decoder layers, as all of them attend, but
        not the embeddings' gradient (3.4).
        """
        keys = self.encoder(embedded, is_real)
        if keys.requires_grad:
            keys.register_hook(lambda gradient: gradient / self.config.decoder_layers)
        return keys, keys + embedded
