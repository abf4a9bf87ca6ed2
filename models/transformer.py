"""Encoder-decoder Transformer (Vaswani et al. 2017), pre- or post-norm.

Embeddings are scaled by sqrt(d_model) (3.4) and, when tied, shared by source, target and output.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, relu

from models.batch import Batch, length_mask
from models.configs.transformer import TransformerConfig
from models.layers.attention import Attention, KeyValue, append
from models.layers.positions import sinusoids

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu}


class FeedForward(nn.Module):
    """down(activation(up(x))) (3.3)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.d_model, config.ffn_dim)
        self.down = nn.Linear(config.ffn_dim, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.up(x)))


class Layer(nn.Module):
    """What encoder and decoder layers share: residual sublayers with a norm before or after."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.is_pre_norm = config.norm == "pre"
        self.dropout = nn.Dropout(config.dropout)
        self.self_attention = _attention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model)

    def enter(self, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        return norm(x) if self.is_pre_norm else x

    def leave(self, x: Tensor, update: Tensor, norm: nn.LayerNorm) -> Tensor:
        x = x + self.dropout(update)
        return x if self.is_pre_norm else norm(x)

    def feed(self, x: Tensor) -> Tensor:
        update = self.feed_forward(self.enter(x, self.feed_forward_norm))
        return self.leave(x, update, self.feed_forward_norm)


class EncoderLayer(Layer):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.enter(x, self.self_attention_norm)
        attention = self.self_attention
        update = attention.attend(attention.queries(y), attention.keys_values(y), mask)
        return self.feed(self.leave(x, update, self.self_attention_norm))


class DecoderLayer(Layer):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.cross_attention = _attention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model)

    def forward(
        self, x: Tensor, memory: KeyValue, mask: Tensor, cache: KeyValue | None
    ) -> tuple[Tensor, KeyValue]:
        """x [batch, new, d_model] after `cache`d positions -> output and the grown cache.

        Several new positions are causal among themselves and need an empty cache.
        """
        y = self.enter(x, self.self_attention_norm)
        attention = self.self_attention
        kv = append(cache, attention.keys_values(y))
        update = attention.attend(attention.queries(y), kv, causal=x.shape[1] > 1)
        x = self.leave(x, update, self.self_attention_norm)
        y = self.enter(x, self.cross_attention_norm)
        update = self.cross_attention.attend(self.cross_attention.queries(y), memory, mask)
        return self.feed(self.leave(x, update, self.cross_attention_norm)), kv


class Positions(nn.Module):
    """Adds sinusoidal (not saved) or learned position vectors."""

    def __init__(self, kind: str, num_positions: int, dim: int) -> None:
        super().__init__()
        if kind == "learned":
            self.weight = nn.Parameter(torch.randn(num_positions, dim) * 0.02)
        else:
            self.register_buffer("weight", sinusoids(num_positions, dim), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return x + self.weight[start : start + x.shape[1]]


class Stack(nn.Module):
    """The encoder's or the decoder's positions, layers and (pre-norm only) final norm."""

    def __init__(self, config: TransformerConfig, layers: list[Layer], num_positions: int) -> None:
        super().__init__()
        self.positions = Positions(config.positions, num_positions, config.d_model)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()


class Transformer(nn.Module):
    """The whole model; `forward` trains, `start` and `step` decode with a key-value cache."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        if config.tied_embeddings:
            self.embedding = nn.Embedding(config.vocab_size, config.d_model)
        else:
            self.source_embedding = nn.Embedding(config.vocab_size, config.d_model)
            self.target_embedding = nn.Embedding(config.vocab_size, config.d_model)
            self.output = nn.Linear(config.d_model, config.vocab_size, bias=False)
        encoder: list[Layer] = [EncoderLayer(config) for _ in range(config.encoder_layers)]
        decoder: list[Layer] = [DecoderLayer(config) for _ in range(config.decoder_layers)]
        self.encoder = Stack(config, encoder, config.max_source_tokens)
        self.decoder = Stack(config, decoder, config.max_target_tokens)
        self.apply(_initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Hidden states for every target position: [batch, target, d_model]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        return self._decode(batch.input_ids, state)[0]

    def project(self, hidden: Tensor) -> Tensor:
        """Hidden states -> logits over the vocabulary."""
        if self.config.tied_embeddings:
            return linear(hidden, self.embedding.weight)
        return self.output(hidden)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; the state that `step` carries from token to token."""
        mask = length_mask(source_lengths, source_ids.shape[1])[:, None, None]
        x = self.encoder.positions(self._embed(source_ids, "source"))
        x = self.dropout(x)
        for layer in self.encoder.layers:
            x = layer(x, mask)
        memory = self.encoder.norm(x)
        cross = [layer.cross_attention.keys_values(memory) for layer in self.decoder.layers]
        return {"cross": cross, "mask": mask, "self": [None] * len(cross), "position": 0}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> hidden [batch, d_model] and the next state."""
        hidden, state = self._decode(ids[:, None], state)
        return hidden[:, 0], state

    def _decode(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        x = self.decoder.positions(self._embed(ids, "target"), state["position"])
        x = self.dropout(x)
        caches = []
        for layer, memory, cache in zip(
            self.decoder.layers, state["cross"], state["self"], strict=True
        ):
            x, cache = layer(x, memory, state["mask"], cache)
            caches.append(cache)
        position = state["position"] + ids.shape[1]
        return self.decoder.norm(x), {**state, "self": caches, "position": position}

    def _embed(self, ids: Tensor, side: str) -> Tensor:
        tied = self.config.tied_embeddings
        embedding = self.embedding if tied else getattr(self, f"{side}_embedding")
        return embedding(ids) * math.sqrt(self.config.d_model)


def _attention(config: TransformerConfig) -> Attention:
    return Attention(config.d_model, config.num_heads, config.num_heads, bias=True)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
