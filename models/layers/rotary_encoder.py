"""Encoders' layers that rotate queries and keys (Su et al. 2021), which architectures share."""

from functools import partial

import torch
from torch import Tensor, nn

from models.batch import length_mask
from models.configs.rotary_encoder import RotaryStackConfig, RotaryWindow
from models.layers.attention import Attention, KeysValues
from models.layers.basic import Dropout, FeedForward
from models.layers.positions import Rotary


class RotaryAttention(Attention):
    """Attention that rotates queries and keys, and may normalise them first (Henry et al. 2020)."""

    def __init__(self, config: RotaryStackConfig, layer: int) -> None:
        size, heads, bias = config.head_size, config.num_heads, config.imported.attention_bias
        has_bias = bias != "none"
        super().__init__(
            config.d_model,
            heads,
            config.kv_heads,
            bias=has_bias,
            head_dim=size,
            cap=config.imported.attention_cap,
        )
        if bias == "qkv":
            self.output = nn.Linear(self.output.in_features, config.d_model, bias=False)
        norm = partial(nn.RMSNorm, size, eps=config.norm.epsilon)
        self.query_norm = norm() if config.imported.qk_norm else nn.Identity()
        self.key_norm = norm() if config.imported.qk_norm else nn.Identity()
        rotation = config.rotation_of(layer)
        pairs, length = rotation.pairs_of(size), config.max_source_tokens
        self.rotary = Rotary(length, pairs, rotation.magnitude)

    def queries(self, x: Tensor) -> Tensor:
        return self.rotary(self.query_norm(super().queries(x)), 0)

    def keys_values(self, x: Tensor) -> KeysValues:
        keys, values = super().keys_values(x)
        return self.rotary(self.key_norm(keys), 0), values


class RotaryEncoderLayer(nn.Module):
    """Attention, then a gated feed-forward network (Shazeer 2020), normalised before, after or on
    both sides.
    """

    def __init__(self, config: RotaryStackConfig, layer: int) -> None:
        super().__init__()
        norm, is_sandwich = partial(_norm, config), config.imported.sandwich_norms
        bias, dims = config.imported.ffn_bias, (config.d_model, config.ffn_dim)
        self.is_post = config.norm.place == "post"
        self.attention = RotaryAttention(config, layer)
        self.attention_norm = norm() if config.has_attention_norm(layer) else nn.Identity()
        self.attention_output_norm = norm() if is_sandwich else nn.Identity()
        self.feed_forward = FeedForward(*dims, config.activation, is_gated=True, bias=bias)
        self.feed_forward_norm = norm()
        self.feed_forward_output_norm = norm() if is_sandwich else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Read x [batch, source, d_model] where `mask` allows it."""
        if self.is_post:
            x = self.attention_norm(x + self.dropout(self._attend(x, mask)))
            return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        update = self._attend(self.attention_norm(x), mask)
        x = x + self.dropout(self.attention_output_norm(update))
        update = self.feed_forward(self.feed_forward_norm(x))
        return x + self.dropout(self.feed_forward_output_norm(update))

    def _attend(self, x: Tensor, mask: Tensor) -> Tensor:
        attention = self.attention
        return attention.attend(attention.queries(x), attention.keys_values(x), mask)


class RotaryStack(nn.Module):
    """Embeds words and reads them by layers."""

    def __init__(self, config: RotaryStackConfig) -> None:
        super().__init__()
        self.config, size = config, config.d_model
        self.embedding = nn.Embedding(config.vocab_size, size)
        self.types = nn.Embedding(config.num_types, size) if config.num_types else None
        self.embedding_norm = _norm(config) if config.embedding_norm else nn.Identity()
        self.layers = nn.ModuleList(
            RotaryEncoderLayer(config, layer) for layer in range(config.num_layers)
        )
        self.norm = _norm(config) if config.norm.place == "pre" else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def hidden_states(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        """Return vectors of the tokens: [batch, source, d_model]."""
        x = self.dropout(self._embed(source_ids, source_types))
        for number, layer in enumerate(self.layers):
            x = layer(x, self._mask(source_lengths, x.shape[1], self.config.window_of(number)))
        return self.norm(x)

    def _embed(self, ids: Tensor, types: Tensor | None) -> Tensor:
        x = self.embedding(ids)
        if self.types is not None:
            is_given = types is not None and self.config.num_types > 1
            x = x + self.types(types if is_given else torch.zeros_like(ids))
        return self.embedding_norm(x)

    def _mask(self, lengths: Tensor, length: int, window: RotaryWindow | None) -> Tensor:
        """Return which positions attend to which: bool [batch, 1, source, source]. Padding attends
        to itself, as a softmax over nothing is not a number.
        """
        positions = torch.arange(length, device=lengths.device)
        offset = positions - positions[:, None]
        is_near = torch.ones_like(offset, dtype=torch.bool)
        if self.config.causal:
            is_near = is_near & (offset <= 0)
        if window is not None:
            is_near = is_near & (offset.abs() < window.size)
        return is_near & (length_mask(lengths, length)[:, None, None] | (offset == 0))


def _norm(config: RotaryStackConfig) -> nn.Module:
    kind = nn.RMSNorm if config.norm.kind == "rms" else nn.LayerNorm
    return kind(config.d_model, eps=config.norm.epsilon)
