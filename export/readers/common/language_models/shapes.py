"""The weights that language models of ours have: their names, and shapes by the configuration."""

from collections.abc import Callable
from typing import Any

from export.readers.common.shapes import Shapes, linear, norm
from models.configs.language_models.decoder_only import DecoderOnlyConfig
from models.configs.language_models.gpt2 import GPT2Config
from models.configs.language_models.gpt_neox import GPTNeoXConfig
from models.configs.language_models.llama import LlamaConfig


def shapes_of(config: DecoderOnlyConfig) -> Shapes:
    """All weights of a language model of one stack."""
    found = _vocabulary(config) | _OUTER[config.architecture](config)
    layer = _LAYERS[config.architecture](config)
    for n in range(config.num_layers):
        found |= {f"layers.{n}.{name}": shape for name, shape in layer.items()}
    return found


def _vocabulary(config: DecoderOnlyConfig) -> Shapes:
    shape = (config.vocab_size, config.d_model)
    names = (
        ("embedding.weight",) if config.tied_embeddings else ("embedding.weight", "output.weight")
    )
    return dict.fromkeys(names, shape)


def _gpt2(config: GPT2Config) -> Shapes:
    table: Shapes = {"positions.weight": (config.context_length, config.d_model)}
    return table | norm("norm", config.d_model, bias=True)


def _gpt_neox(config: GPTNeoXConfig) -> Shapes:
    found: Shapes = {"output.bias": (config.vocab_size,)} if config.output_bias else {}
    return found | norm("norm", config.d_model, bias=True)


def _llama(config: LlamaConfig) -> Shapes:
    return norm("norm", config.d_model, bias=False)


def _gpt2_layer(config: GPT2Config) -> Shapes:
    return _normed(config) | _attention(config, config.num_heads, True, True) | _dense(config)


def _gpt_neox_layer(config: GPTNeoXConfig) -> Shapes:
    bias = config.attention_bias
    return _normed(config) | _attention(config, config.kv_heads, bias, bias) | _dense(config)


def _llama_layer(config: LlamaConfig) -> Shapes:
    has_bias = config.attention_bias != "none"
    found = _attention(config, config.num_kv_heads, has_bias, config.attention_bias == "all")
    for name, size in (("gate", config.ffn_dim), ("up", config.ffn_dim), ("down", config.d_model)):
        into = config.d_model + config.ffn_dim - size
        found |= linear(f"feed_forward.{name}", size, into, bias=config.ffn_bias)
    outputs = ("attention_output_norm", "feed_forward_output_norm") * config.sandwich_norms
    for name in ("attention_norm", "feed_forward_norm", *outputs):
        found |= norm(name, config.d_model, bias=False)
    for part in ("query", "key") * config.qk_norm:
        found |= norm(f"attention.{part}_norm", config.head_size, bias=False)
    return found


def _attention(config: DecoderOnlyConfig, kv_heads: int, bias: bool, output_bias: bool) -> Shapes:
    """bias: of queries, keys and values."""
    found: Shapes = {}
    heads = {"query": config.num_heads, "key": kv_heads, "value": kv_heads}
    for part, count in heads.items():
        out = count * config.head_size
        found |= linear(f"attention.{part}", out, config.d_model, bias=bias)
    into = config.num_heads * config.head_size
    return found | linear("attention.output", config.d_model, into, bias=output_bias)


def _normed(config: DecoderOnlyConfig) -> Shapes:
    names = ("attention_norm", "feed_forward_norm")
    first, second = (norm(name, config.d_model, bias=True) for name in names)
    return first | second


def _dense(config: DecoderOnlyConfig) -> Shapes:
    up = linear("feed_forward.up", config.ffn_dim, config.d_model, bias=True)
    return up | linear("feed_forward.down", config.d_model, config.ffn_dim, bias=True)


_OUTER: dict[str, Callable[[Any], Shapes]] = {"gpt2": _gpt2, "gpt-neox": _gpt_neox, "llama": _llama}
_LAYERS: dict[str, Callable[[Any], Shapes]] = {
    "gpt2": _gpt2_layer,
    "gpt-neox": _gpt_neox_layer,
    "llama": _llama_layer,
}
