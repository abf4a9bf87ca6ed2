"""A decoder-only language model in the shape of GPT-2 (Radford et al. 2019, 2.3).

Learned positions, LayerNorm before each sublayer and after the last, GELU (Hendrycks and Gimpel
2016) by its tanh approximation, biases, tied output. A `window` is an addition, as in Mistral.
"""

import math
from functools import partial

import torch
from torch import Tensor, nn

from models.architectures.gpt2.config import GPT2Config
from models.layers.attention import Attention
from models.layers.basic import Dropout, FeedForward
from models.layers.decoder_only import DecoderBlock, DecoderOnly, initialise
from models.layers.positions import LearnedPositions


class GPT2(DecoderOnly):
    """Adds learned positions to embeddings."""

    def __init__(self, config: GPT2Config) -> None:
        blocks = (_block(config) for _ in range(config.num_layers))
        super().__init__(config, blocks, _norm(config))
        self.positions = LearnedPositions(config.context_length, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.apply(initialise)
        self._shrink_residuals()

    def embed_at(self, ids: Tensor, start: int) -> Tensor:
        return self.dropout(self.positions(self.embed(ids), start))

    @torch.no_grad()
    def _shrink_residuals(self) -> None:
        """Make the initial outputs of the 2 * num_layers sublayers smaller, the more there are."""
        for layer in self.layers:
            for linear in (layer.attention.output, layer.feed_forward.down):
                linear.weight /= math.sqrt(2 * self.config.num_layers)


def _block(config: GPT2Config) -> DecoderBlock:
    attention = Attention(
        config.d_model, config.num_heads, config.num_heads, bias=True, head_dim=config.head_size
    )
    feed_forward = FeedForward(config.d_model, config.ffn_dim, config.activation)
    return DecoderBlock(attention, feed_forward, partial(_norm, config), config.dropout)


def _norm(config: GPT2Config) -> nn.Module:
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
