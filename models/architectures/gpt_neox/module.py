"""Decoder-only language models in the shape of GPT-NeoX (Black et al. 2022).

LayerNorm, biases, GELU, RoPE of a part of each head, and attention and feed-forward network in
parallel: Pythia (Biderman et al. 2023). A bias of the output layer and one norm for both sublayers,
here two equal ones, make it Phi (Gunasekar et al. 2023, Li et al. 2023) and GPT-J (Wang and
Komatsuzaki 2021). More options make it BLOOM (biases of scores by position in place of rotation, a
norm of the embedding), Falcon, StableLM and Command R (gated feed-forward networks, norms of
queries and keys, windows in some layers) and OLMo (limits of queries, keys and values).
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.layers.attention import Attention, KeysValues
from models.layers.basic import FeedForward
from models.layers.decoder_only import (
    DecoderBlock,
    DecoderOnly,
    NormedResidualBlock,
    ParallelBlock,
    initialise,
)
from models.layers.positions import Rotary


class HeadNorm(nn.Module):
    """Divides each head by its root mean square; the weights are each head's own."""

    def __init__(self, num_heads: int, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(num_heads, size))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x [batch, heads, length, size]."""
        return rms_norm(x, x.shape[-1:], eps=self.epsilon) * self.weight[:, None]


class GPTNeoXAttention(Attention):
    """Attention that may limit queries, keys and values, and normalise queries and keys."""

    def __init__(self, config: GPTNeoXConfig) -> None:
        imported, size = config.imported, config.head_size
        super().__init__(
            config.d_model,
            config.num_heads,
            config.kv_heads,
            bias=imported.attention_bias,
            head_dim=size,
        )
        self.limit = imported.qkv_limit
        norm = partial(HeadNorm, size=size, epsilon=config.norm_epsilon)
        self.query_norm = norm(config.num_heads) if imported.qk_norm else nn.Identity()
        self.key_norm = norm(config.kv_heads) if imported.qk_norm else nn.Identity()

    def queries(self, x: Tensor) -> Tensor:
        return self.query_norm(self._limit(super().queries(x)))

    def keys_values(self, x: Tensor) -> KeysValues:
        keys, values = map(self._limit, super().keys_values(x))
        return self.key_norm(keys), values

    def _limit(self, x: Tensor) -> Tensor:
        return x if self.limit is None else x.clamp(-self.limit, self.limit)


class PositionBiases(nn.Module):
    """A number for each position and head, added to the scores of the key there."""

    def __init__(self, num_positions: int, num_heads: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_positions, num_heads))

    def forward(self, allowed: Tensor) -> Tensor:
        """Return a mask [heads, query, key] from one of bools [query, key]."""
        biases = self.weight[: allowed.shape[1]].T[:, None]
        return torch.where(allowed, biases, float("-inf"))


class GPTNeoX(DecoderOnly):
    """Rotates queries and keys, or adds biases of positions to scores. The output layer may have a
    bias.
    """

    config: GPTNeoXConfig

    def __init__(self, config: GPTNeoXConfig) -> None:
        super().__init__(config, (_block(config) for _ in range(config.num_layers)), _norm(config))
        imported = config.imported
        if imported.output_bias:
            self.output = nn.Linear(config.d_model, config.vocab_size)
        if imported.position_biases:
            self.position_biases = PositionBiases(config.context_length, config.num_heads)
        self.embedding_norm = _norm(config) if imported.embedding_norm else nn.Identity()
        self.rotary = Rotary(config.context_length, config.frequencies, imported.rotary_magnitude)
        self.apply(initialise)

    def embed_at(self, ids: Tensor, start: int) -> Tensor:
        return self.embedding_norm(self.embed(ids))

    def project(self, hidden: Tensor) -> Tensor:
        return self.output(hidden) if self.config.imported.output_bias else super().project(hidden)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        return self.rotary(x, start) if self.config.frequencies_of(layer) else x

    def mask(self, allowed: Tensor) -> Tensor:
        return self.position_biases(allowed) if self.config.imported.position_biases else allowed


def _block(config: GPTNeoXConfig) -> DecoderBlock:
    imported = config.imported
    feed_forward = FeedForward(
        config.d_model,
        config.ffn_dim,
        config.activation,
        is_gated=imported.gated_ffn,
        bias=imported.ffn_bias,
    )
    kind = ParallelBlock if config.parallel_residual else DecoderBlock
    if imported.residual_after_norm:
        kind = NormedResidualBlock
    return kind(GPTNeoXAttention(config), feed_forward, partial(_norm, config), config.dropout)


def _norm(config: GPTNeoXConfig) -> nn.Module:
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon)
