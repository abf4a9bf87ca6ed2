"""Decoder-only language models in the shape of Llama (Touvron et al. 2023).

RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021), grouped-query attention (Ainslie et al.
2023) and SwiGLU (Shazeer 2020), no biases. A `window` makes it Mistral (Jiang et al. 2023, 2).
Options make it Qwen (biases of queries, keys and values; norms of queries and keys), Gemma (a
scaled embedding, GELU, caps, norms on both sides of a sublayer, windows in some layers), gpt-oss
(attention sinks), OLMo 2 (norms after sublayers only, and of all heads together), Hunyuan (norms of
rotated queries and keys), Ministral 3 (queries that grow), SmolLM3 (layers that do not rotate) and
DeepSeek (latent attention).
"""

from functools import partial

import torch
from torch import Tensor, nn

from models.architectures.llama.config import LATENT_EPSILON, LatentAttention, LlamaConfig
from models.configs.transformer import Experts
from models.layers.attention import Attention, KeysValues
from models.layers.basic import FeedForward
from models.layers.decoder_only import DecoderBlock, DecoderOnly, initialise
from models.layers.experts import MixtureOfExperts
from models.layers.position_tables import query_growth
from models.layers.positions import Rotary


class LlamaAttention(Attention):
    """Attention that may normalise queries and keys (Henry et al. 2020), or have sinks."""

    growth: Tensor | None  # of queries, [positions, 1]

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            bias=config.imported.attention_bias != "none",
            head_dim=config.head_size,
            cap=config.imported.attention_cap,
        )
        if config.imported.attention_bias == "qkv":
            self.output = nn.Linear(self.output.in_features, config.d_model, bias=False)
        self.query_norm = _norm_of_heads(config, config.num_heads)
        self.key_norm = _norm_of_heads(config, config.num_kv_heads)
        has_sinks = config.imported.attention_sinks
        self.sinks = nn.Parameter(torch.zeros(config.num_heads)) if has_sinks else None
        self.norms_rotated = config.imported.qk_norm_after_rotation
        self.register_buffer("growth", _query_growth(config), persistent=False)

    def queries(self, x: Tensor) -> Tensor:
        queries = super().queries(x)
        return queries if self.norms_rotated else self.query_norm(queries)

    def keys_values(self, x: Tensor) -> KeysValues:
        keys, values = super().keys_values(x)
        return keys if self.norms_rotated else self.key_norm(keys), values

    def attend(self, query: Tensor, keys_values: KeysValues, mask: Tensor) -> Tensor:
        keys, values = keys_values
        if self.norms_rotated:
            query, keys_values = self.query_norm(query), (self.key_norm(keys), values)
        if self.growth is not None:
            query = query * self.growth[keys.shape[2] - query.shape[2] : keys.shape[2]]
        return super().attend(query, keys_values, mask)

    def is_fused(self, query: Tensor) -> bool:
        return super().is_fused(query) and self.sinks is None

    def weights(self, scores: Tensor) -> Tensor:
        if self.sinks is None:
            return super().weights(scores)
        sinks = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]


class MultiHeadLatentAttention(Attention):
    """Attention whose keys and values are products of one vector (DeepSeek-AI 2024, V2 2.1)."""

    def __init__(self, config: LlamaConfig, latent: LatentAttention) -> None:
        dim, heads, size = config.d_model, config.num_heads, config.head_size
        cap = config.imported.attention_cap
        super().__init__(dim, heads, heads, bias=False, head_dim=size, cap=cap)
        rotated = 2 * len(config.frequencies)
        self.latent = nn.Linear(dim, latent.size, bias=False)
        self.latent_norm = nn.RMSNorm(latent.size, eps=LATENT_EPSILON)
        self.shared_key = nn.Linear(dim, rotated, bias=False)
        self.key = nn.Linear(latent.size, heads * (size - rotated), bias=False)
        self.value = nn.Linear(latent.size, heads * latent.value_size, bias=False)
        self.output = nn.Linear(heads * latent.value_size, dim, bias=False)
        self.has_query_latent = latent.query_size is not None
        if latent.query_size is not None:
            self.query_latent = nn.Linear(dim, latent.query_size, bias=False)
            self.query_latent_norm = nn.RMSNorm(latent.query_size, eps=LATENT_EPSILON)
            self.query = nn.Linear(latent.query_size, heads * size, bias=False)

    def queries(self, x: Tensor) -> Tensor:
        if self.has_query_latent:
            x = self.query_latent_norm(self.query_latent(x))
        return super().queries(x)

    def keys_values(self, x: Tensor) -> KeysValues:
        """The part of a key that is rotated comes first."""
        latent, shared = self.latent_norm(self.latent(x)), self.shared_key(x).unsqueeze(1)
        keys, values = (
            part(latent).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in (self.key, self.value)
        )
        return torch.cat([shared.expand(-1, self.num_heads, -1, -1), keys], -1), values


class Llama(DecoderOnly):
    """Rotates queries and keys, each layer by its own table."""

    config: LlamaConfig

    def __init__(self, config: LlamaConfig) -> None:
        blocks = (_block(config, layer) for layer in range(config.num_layers))
        super().__init__(
            config,
            blocks,
            _norm(config),
            config.imported.embedding_scale,
            config.imported.logit_cap,
        )
        tables = [config.table_of(layer) for layer in range(config.num_layers)]
        distinct = list(dict.fromkeys(tables))
        self.rotaries = nn.ModuleList(
            Rotary(config.context_length, *options) for options in distinct
        )
        self.rotary_of = [distinct.index(table) for table in tables]
        self.apply(initialise)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        return self.rotaries[self.rotary_of[layer]](x, start)


def _query_growth(config: LlamaConfig) -> Tensor | None:
    growth = config.imported.query_growth
    if growth is None:
        return None
    table = query_growth(config.context_length, growth.rate, growth.length)
    return torch.from_numpy(table).float()


def _norm_of_heads(config: LlamaConfig, num_heads: int) -> nn.Module:
    """Return what normalises x [batch, heads, length, head_dim]."""
    if not config.imported.qk_norm:
        return nn.Identity()
    if config.imported.qk_norm_spans_heads:
        return NormOfAllHeads(num_heads * config.head_size, eps=config.norm_epsilon)
    return nn.RMSNorm(config.head_size, eps=config.norm_epsilon)


class NormOfAllHeads(nn.RMSNorm):
    """Normalises the numbers of all heads together (OLMo 2, Team OLMo 2025)."""

    def forward(self, x: Tensor) -> Tensor:
        joined = super().forward(x.transpose(1, 2).flatten(2))
        return joined.unflatten(-1, (x.shape[1], -1)).transpose(1, 2)


def _attention(config: LlamaConfig) -> Attention:
    latent = config.imported.latent_attention
    return LlamaAttention(config) if latent is None else MultiHeadLatentAttention(config, latent)


def _block(config: LlamaConfig, layer: int) -> DecoderBlock:
    block = DecoderBlock(
        _attention(config),
        _feed_forward(config, config.experts_of(layer)),
        partial(_norm, config),
        config.dropout,
        is_sandwich=config.imported.sandwich_norms,
    )
    if not config.imported.input_norms:
        block.attention_norm = block.feed_forward_norm = nn.Identity()
    return block


def _feed_forward(config: LlamaConfig, experts: Experts | None) -> nn.Module:
    if experts is not None:
        return MixtureOfExperts(config.d_model, experts, config.activation)
    sizes, bias = (config.d_model, config.ffn_dim), config.imported.ffn_bias
    return FeedForward(*sizes, config.activation, is_gated=config.imported.gated_ffn, bias=bias)


def _norm(config: LlamaConfig) -> nn.Module:
    return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
