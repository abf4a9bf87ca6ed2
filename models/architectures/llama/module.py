"""Decoder-only language models in the shape of Llama (Touvron et al. 2023).

RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021), grouped-query attention (Ainslie et al.
2023) and SwiGLU (Shazeer 2020), no biases. A `window` makes it Mistral (Jiang et al. 2023, 2).
Options make it Qwen (biases of queries, keys and values; norms of queries and keys), Gemma (a
scaled embedding, GELU, caps, norms on both sides of a sublayer, windows in some layers) and SmolLM3
(layers that do not rotate).
"""

from functools import partial

from torch import Tensor, nn

from models.architectures.llama.config import LlamaConfig
from models.configs.transformer import Experts
from models.layers.attention import Attention, KeysValues
from models.layers.basic import FeedForward, capped
from models.layers.decoder_only import Block, DecoderOnly, initialise
from models.layers.experts import MixtureOfExperts
from models.layers.positions import Rotary


class LlamaAttention(Attention):
    """Attention that may normalise queries and keys (Henry et al. 2020) and cap scores."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(
            config.d_model,
            config.num_heads,
            config.num_kv_heads,
            bias=config.imported.attention_bias != "none",
            head_dim=config.head_size,
        )
        if config.imported.attention_bias == "qkv":
            self.output = nn.Linear(self.output.in_features, config.d_model, bias=False)
        norm = partial(nn.RMSNorm, config.head_size, eps=config.norm_epsilon)
        self.query_norm = norm() if config.imported.qk_norm else nn.Identity()
        self.key_norm = norm() if config.imported.qk_norm else nn.Identity()
        self.cap = config.imported.attention_cap

    def queries(self, x: Tensor) -> Tensor:
        return self.query_norm(super().queries(x))

    def keys_values(self, x: Tensor) -> KeysValues:
        keys, values = super().keys_values(x)
        return self.key_norm(keys), values

    def is_fused(self, query: Tensor) -> bool:
        return super().is_fused(query) and self.cap is None

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return capped(super().scores(query, keys), self.cap)


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
        self.rotaries = nn.ModuleList(Rotary(config.context_length, *each) for each in distinct)
        self.rotary_of = [distinct.index(table) for table in tables]
        self.apply(initialise)

    def rotate(self, x: Tensor, start: int, layer: int) -> Tensor:
        return self.rotaries[self.rotary_of[layer]](x, start)


def _block(config: LlamaConfig, layer: int) -> Block:
    return Block(
        LlamaAttention(config),
        _feed_forward(config, config.experts_of(layer)),
        partial(_norm, config),
        config.dropout,
        is_sandwich=config.imported.sandwich_norms,
    )


def _feed_forward(config: LlamaConfig, experts: Experts | None) -> nn.Module:
    if experts is not None:
        return MixtureOfExperts(config.d_model, experts, config.activation)
    sizes, bias = (config.d_model, config.ffn_dim), config.imported.ffn_bias
    return FeedForward(*sizes, config.activation, is_gated=True, bias=bias)


def _norm(config: LlamaConfig) -> nn.Module:
    return nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
