"""Encoder-decoder Transformer (Vaswani et al. 2017), pre- or post-norm.

Embeddings are scaled, by sqrt(d_model) if nothing else is said (3.4), and, when tied, shared by
source, target and output.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.batch import Batch, length_mask
from models.configs.translators.transformer import TransformerSizes
from models.layers.attention import Attention, KeyValue, append, causal_mask
from models.layers.dropout import Dropout
from models.layers.feed_forward import FeedForward
from models.layers.positions import (
    LearnedPositions,
    Positions,
    RelativePositions,
    SinusoidalPositions,
)


class Layer(nn.Module):
    """What encoder and decoder layers share: residual sublayers with a norm before or after."""

    def __init__(self, config: TransformerSizes) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.dropout = Dropout(config.dropout)
        self.feed_forward = FeedForward(
            config.d_model,
            config.ffn_dim,
            config.activation,
            is_gated=config.gated_ffn,
            bias=config.biases,
        )
        self.feed_forward_norm = norm_of(config)

    def enter(self, x: Tensor, norm: nn.Module) -> Tensor:
        return norm(x) if self.is_pre_norm else x

    def leave(self, x: Tensor, update: Tensor, norm: nn.Module) -> Tensor:
        x = x + self.dropout(update)
        return x if self.is_pre_norm else norm(x)

    def feed(self, x: Tensor) -> Tensor:
        update = self.feed_forward(self.enter(x, self.feed_forward_norm))
        return self.leave(x, update, self.feed_forward_norm)


class EncoderLayer(Layer):
    def __init__(self, config: TransformerSizes) -> None:
        super().__init__(config)
        self.self_attention = _attention(config)
        self.self_attention_norm = norm_of(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.enter(x, self.self_attention_norm)
        attention = self.self_attention
        update = attention.attend(attention.queries(y), attention.keys_values(y), mask)
        return self.feed(self.leave(x, update, self.self_attention_norm))


class DecoderLayer(Layer, ABC):
    """Reads the target so far, each kind of layer in its own way, then the source."""

    def __init__(self, config: TransformerSizes) -> None:
        super().__init__(config)
        self.cross_attention = _attention(config)
        self.cross_attention_norm = norm_of(config)

    def forward(
        self, x: Tensor, past: Any, mask: Tensor, memory: KeyValue, memory_mask: Tensor
    ) -> tuple[Tensor, Any]:
        """x [batch, new, d_model] after `past` (None: nothing) -> output and the past with it."""
        x, past = self.read_target(x, past, mask)
        y = self.enter(x, self.cross_attention_norm)
        update = self.cross_attention.attend(self.cross_attention.queries(y), memory, memory_mask)
        return self.feed(self.leave(x, update, self.cross_attention_norm)), past

    @abstractmethod
    def read_target(self, x: Tensor, past: Any, mask: Tensor) -> tuple[Tensor, Any]:
        """x [batch, new, d_model] after `past`, where `mask` lets it look; and the past with it."""


class SelfAttentionDecoderLayer(DecoderLayer):
    """The past is the keys and values."""

    def __init__(self, config: TransformerSizes) -> None:
        super().__init__(config)
        self.self_attention = _attention(config)
        self.self_attention_norm = norm_of(config)

    def read_target(
        self, x: Tensor, past: KeyValue | None, mask: Tensor
    ) -> tuple[Tensor, KeyValue]:
        y = self.enter(x, self.self_attention_norm)
        kv = append(past, self.self_attention.keys_values(y))
        update = self.self_attention.attend(self.self_attention.queries(y), kv, mask)
        return self.leave(x, update, self.self_attention_norm), kv


class Stack(nn.Module):
    """The encoder's or the decoder's positions and layers, and the norms before and after them."""

    def __init__(
        self, config: TransformerSizes, layers: Sequence[Layer], positions: Positions
    ) -> None:
        super().__init__()
        self.positions = positions
        self.layers = nn.ModuleList(layers)
        self.embedding_norm = norm_of(config) if config.embedding_norm else nn.Identity()
        self.norm = norm_of(config) if config.has_final_norm else nn.Identity()

    def enter(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Embedded tokens of positions `start`.. -> what the first layer reads."""
        return self.embedding_norm(self.positions(embedded, start))


class Transformer(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode from token to token."""

    decoder_layer: type[DecoderLayer] = SelfAttentionDecoderLayer

    def __init__(self, config: TransformerSizes) -> None:
        super().__init__()
        self.config = config
        self.dropout = Dropout(config.dropout)
        if config.tied_embeddings:
            self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        else:
            self.source_embedding = nn.Embedding(config.source_vocabulary, config.d_model)
            self.target_embedding = nn.Embedding(config.vocab_size, config.d_model)
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.output_bias = (
            nn.Parameter(torch.zeros(config.vocab_size)) if config.output_bias else None
        )
        encoder = [EncoderLayer(config) for _ in range(config.encoder_layers)]
        decoder = [self.decoder_layer(config) for _ in range(config.decoder_layers)]
        self.encoder = Stack(
            config, encoder, _positions(config, config.max_source_tokens, bidirectional=True)
        )
        self.decoder = Stack(
            config, decoder, _positions(config, config.max_target_tokens, bidirectional=False)
        )
        self.apply(_initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states for every target position: [batch, target, d_model]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        return self._decode(batch.input_ids, state)[0]

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states -> logits over the vocabulary."""
        output = self.embedding if self.config.tied_embeddings else self.output
        return linear(hidden, output.weight, self.output_bias)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; the state that `step` carries from token to token."""
        length = source_ids.shape[1]
        is_real = length_mask(source_lengths, length)[:, None, None]
        mask = self.encoder.positions.weigh(is_real, 0, length)
        x = self.dropout(self.encoder.enter(self._embed(source_ids, "source")))
        for layer in self.encoder.layers:
            x = layer(x, mask)
        memory = self.encoder.norm(x)
        cross = [layer.cross_attention.keys_values(memory) for layer in self.decoder.layers]
        return {"cross": cross, "mask": is_real, "past": [None] * len(cross), "position": 0}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> hidden [batch, d_model] and the next state."""
        hidden, state = self._decode(ids[:, None], state)
        return hidden[:, 0], state

    def _decode(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        start, end = state["position"], state["position"] + ids.shape[1]
        mask = self.decoder.positions.weigh(causal_mask(start, end, None, ids.device), start, end)
        x = self.dropout(self.decoder.enter(self._embed(ids, "target"), start))
        pasts = []
        for layer, past, memory in zip(
            self.decoder.layers, state["past"], state["cross"], strict=True
        ):
            x, past = layer(x, past, mask, memory, state["mask"])
            pasts.append(past)
        return self.decoder.norm(x), {**state, "past": pasts, "position": end}

    def _embed(self, ids: Tensor, side: str) -> Tensor:
        tied = self.config.tied_embeddings
        embedding = self.embedding if tied else getattr(self, f"{side}_embedding")
        return embedding(ids) * self.config.scale_of_embeddings


def _positions(config: TransformerSizes, num_positions: int, *, bidirectional: bool) -> Positions:
    if config.positions == "relative":
        return RelativePositions(
            config.num_heads, config.num_buckets, config.max_distance, bidirectional=bidirectional
        )
    kind = LearnedPositions if config.positions == "learned" else SinusoidalPositions
    return kind(num_positions, config.d_model)


def _attention(config: TransformerSizes) -> Attention:
    return Attention(
        config.d_model,
        config.num_heads,
        config.kv_heads,
        bias=config.biases,
        head_dim=config.head_dim,
    )


def norm_of(config: TransformerSizes) -> nn.Module:
    kind = nn.RMSNorm if config.norm_type == "rms" else nn.LayerNorm
    return kind(config.d_model, eps=config.norm_epsilon)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
