"""Whisper (Radford et al. 2022): a Transformer that reads log-mel spectrograms.

Convolutions are linear layers over frames side by side, the earliest first.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, pad

from models.architectures.whisper.config import WhisperConfig
from models.layers.transformer import (
    BaseTransformer,
    EncoderLayer,
    LayerStack,
    SelfAttentionDecoderLayer,
    TransformerState,
)

KERNEL_SIZE = 3  # frames that a convolution reads at once


class SpeechEncoder(LayerStack):
    """Convolves frames, halving their number, and reads the result by Transformer layers."""

    def __init__(self, config: WhisperConfig) -> None:
        layers = [EncoderLayer(config.encoder_side) for _ in range(config.encoder_layers)]
        super().__init__(config, layers, config.max_source_tokens, bidirectional=True)
        dims = config.audio.num_mels, config.d_model
        self.convolutions = nn.ModuleList(
            nn.Linear(KERNEL_SIZE * dim, config.d_model) for dim in dims
        )

    def convolve(self, features: Tensor) -> Tensor:
        """Return [batch, frames / 2, d_model] of features [batch, mels, frames]."""
        x = features.mT
        for stride, convolution in enumerate(self.convolutions, start=1):
            windows = pad(x, (0, 0, 1, 1)).unfold(1, KERNEL_SIZE, stride)
            x = gelu(convolution(windows.mT.flatten(2)))
        return x


class Whisper(BaseTransformer):
    """Writes what is said in a window of sound."""

    decoder_layer = SelfAttentionDecoderLayer
    config: WhisperConfig

    def __init__(self, config: WhisperConfig) -> None:
        super().__init__(config)
        self.source_embedding = None  # there are no words to read

    def make_encoder(self, config: WhisperConfig) -> SpeechEncoder:
        return SpeechEncoder(config)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> TransformerState:
        """Read features [batch, mels, frames]; all windows have one length."""
        lengths = torch.full((len(source_ids),), self.config.max_source_tokens)
        return super().encode(source_ids, lengths.to(source_ids.device))

    def embed_source(self, ids: Tensor) -> Tensor:
        """Return vectors [batch, frames / 2, d_model] of features [batch, mels, frames]."""
        vectors: Tensor = self.encoder.convolve(ids)
        return vectors
