"""The Transformer's encoder alone: BERT (Devlin et al. 2019) and its descendants.

RoBERTa (Liu et al. 2019), XLM-R (Conneau et al. 2020) and DistilBERT (Sanh et al. 2019) differ in
what they call a token's segment and position; MPNet (Song et al. 2020) adds a bias by distance to
the scores of all layers, DeBERTa (He et al. 2021) one that depends on queries and keys. Words of
ELECTRA (Clark et al. 2020) and ALBERT (Lan et al. 2020) have smaller vectors than the layers.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from models.architectures.transformer_encoder.config import (
    ConvolutionOptions,
    Disentangled,
    TransformerEncoderConfig,
)
from models.batch import length_mask
from models.configs.base import MaskedWordHead
from models.configs.transformer import Relative
from models.contract import EncoderModel
from models.layers.attention import Attention
from models.layers.basic import Dropout, FeedForward
from models.layers.encoder import SQUASHING, HeadLayers, MaskedWordLayers, pool
from models.layers.position_tables import disentangled_buckets
from models.layers.positions import DisentangledPositions, LearnedPositions, RelativePositions
from models.layers.recurrent import initialise


class TypedEncoderLayer(nn.Module):
    """Self-attention, then feed-forward. Norms come after the residual sums."""

    def __init__(self, config: TransformerEncoderConfig) -> None:
        super().__init__()
        size, heads = config.d_model, config.num_heads
        self.self_attention = Attention(size, heads, heads, bias=True, head_dim=config.head_dim)
        self.self_attention_norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(size, config.ffn_dim, config.activation)
        self.feed_forward_norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.positions = _disentangled_positions(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Read x [batch, source, d_model] where `mask` allows it."""
        attention = self.self_attention
        query, keys_values = attention.queries(x), attention.keys_values(x)
        if self.positions is not None:
            mask = self.positions.mask_scores(mask, query, keys_values[0])
        attended = attention.attend(query, keys_values, mask)
        x = self.self_attention_norm(x + self.dropout(attended))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class ConvolutionLayer(nn.Module):
    """Adds a convolution of the embedded text to a layer's output, and normalises the sum."""

    def __init__(self, dim: int, config: ConvolutionOptions, epsilon: float) -> None:
        super().__init__()
        self.half = config.kernel_size // 2
        self.linear = nn.Linear(config.kernel_size * dim, dim)
        self.activation = SQUASHING[config.activation]
        self.norm = nn.LayerNorm(dim, eps=epsilon)

    def forward(self, embedded: Tensor, x: Tensor, is_real: Tensor) -> Tensor:
        """Both [batch, source, dim]; is_real: [batch, source]."""
        length = x.shape[1]
        padded = pad(embedded * is_real[..., None], (0, 0, self.half, self.half))
        windows = [padded[:, first : first + length] for first in range(2 * self.half + 1)]
        return self.norm(x + self.activation(self.linear(torch.cat(windows, -1))))


class TransformerEncoder(EncoderModel):
    """Self-attention over a text, then pooling of its tokens, unless the head reads each token."""

    config: TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig) -> None:
        super().__init__()
        self.config, size = config, config.word_dim
        self.embedding = nn.Embedding(config.vocab_size, size)
        self.positions = None
        if config.has_positions:
            self.positions = LearnedPositions(config.max_source_tokens, size)
        self.types = nn.Embedding(config.num_types, size) if config.num_types else None
        self.embedding_norm = nn.LayerNorm(size, eps=config.norm_epsilon)
        self.projection = nn.Linear(size, config.d_model) if config.embedding_dim else None
        self.distances = _distances(config)
        self.layers = nn.ModuleList(
            TypedEncoderLayer(config) for _ in range(config.num_stored_layers)
        )
        self.convolution = None
        if config.convolution is not None:
            sizes = config.d_model, config.convolution, config.norm_epsilon
            self.convolution = ConvolutionLayer(*sizes)
        self.dropout = Dropout(config.dropout)
        self.head = _head(config)
        self.apply(initialise)
        if isinstance(self.head, MaskedWordLayers):
            nn.init.normal_(self.embedding.weight, std=size**-0.5)  # it scores words, too

    def encode(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        length = source_ids.shape[1]
        is_real = length_mask(source_lengths, length)[:, None, None]
        mask = is_real
        if self.distances is not None:
            mask = self.distances.mask_scores(is_real, 0, length)
        x = embedded = self.dropout(self._embed(source_ids, source_types))
        for number in range(self.config.num_layers):
            x = self.layers[number % len(self.layers)](x, mask)
            if number == 0 and self.convolution is not None:
                x = self.convolution(embedded, x, is_real[:, 0, 0])
        per_token = self.config.head.per_token
        return self.head(x if per_token else pool(x, source_lengths, self.config.pooling))

    def project(self, hidden: Tensor) -> Tensor:
        if isinstance(self.head, MaskedWordLayers):
            return linear(hidden, self.embedding.weight, self.head.bias)
        return self.head.project(hidden)

    def _embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        x = self.embedding(ids)
        if self.positions is not None:
            x = self.positions(x)
        if self.types is not None:
            is_told = types is not None and self.config.num_types > 1
            x = x + self.types(types if is_told else torch.zeros_like(ids))
        x = self.embedding_norm(x)
        return x if self.projection is None else self.projection(x)


def _head(config: TransformerEncoderConfig) -> HeadLayers | MaskedWordLayers:
    if isinstance(config.head, MaskedWordHead):
        return MaskedWordLayers(config.vector_dim, config.head, config.vocab_size)
    return HeadLayers(config.vector_dim, config.head, config.dropout)


def _distances(config: TransformerEncoderConfig) -> RelativePositions | None:
    distances = config.distances
    if not isinstance(distances, Relative):
        return None
    sizes = config.num_heads, distances.num_buckets, distances.max_distance
    return RelativePositions(*sizes, bidirectional=True)


def _disentangled_positions(config: TransformerEncoderConfig) -> DisentangledPositions | None:
    distances = config.distances
    if not isinstance(distances, Disentangled):
        return None
    return DisentangledPositions(
        config.num_heads,
        config.head_size,
        2 * distances.num_buckets,
        disentangled_buckets(
            config.max_source_tokens, distances.num_buckets, distances.max_distance
        ),
        has_keys=distances.content_to_position,
        has_queries=distances.position_to_content,
    )
