"""Tells which weights language models of ours have, and their shapes by the configuration."""

from export.readers.common.shapes import Shapes, attention, linears, norms, repeated
from models.configs.language_models.gpt2 import GPT2Config
from models.configs.language_models.gpt_neox import GPTNeoXConfig
from models.configs.language_models.llama import LlamaConfig
from models.configs.language_models.mamba2 import Mamba2Config

NORMS = ("attention_norm", "feed_forward_norm")
SANDWICH = (*NORMS, "attention_output_norm", "feed_forward_output_norm")


def shapes_of(config: GPT2Config | GPTNeoXConfig | LlamaConfig | Mamba2Config) -> Shapes:
    """Give all weights of a language model of one stack."""
    tables = ("embedding.weight", "output.weight")[: 1 if config.tied_embeddings else 2]
    found: Shapes = dict.fromkeys(tables, (config.vocab_size, config.d_model))
    if isinstance(config, LlamaConfig):
        return found | _llama(config)
    if isinstance(config, Mamba2Config):
        return found | _mamba2(config)
    return found | (_gpt2(config) if isinstance(config, GPT2Config) else _gpt_neox(config))


def _gpt2(config: GPT2Config) -> Shapes:
    positions: Shapes = {"positions.weight": (config.context_length, config.d_model)}
    return positions | _plain(config, config.num_heads, bias=True)


def _gpt_neox(config: GPTNeoXConfig) -> Shapes:
    bias: Shapes = {"output.bias": (config.vocab_size,)} if config.imported.output_bias else {}
    return bias | _plain(config, config.kv_heads, bias=config.imported.attention_bias)


def _plain(config: GPT2Config | GPTNeoXConfig, kv_heads: int, *, bias: bool) -> Shapes:
    """Give norms and feed-forward layers with biases. bias: of attention."""
    dim, wide = config.d_model, config.ffn_dim
    matrices = attention("attention", dim, config.num_heads, kv_heads, config.head_size)
    dense = {"feed_forward.up": (wide, dim), "feed_forward.down": (dim, wide)}
    layer = linears(matrices, bias=bias) | linears(dense, bias=True)
    layer |= norms(NORMS, dim, bias=True)
    return norms(["norm"], dim, bias=True) | repeated("layers", config.num_layers, layer)


def _llama(config: LlamaConfig) -> Shapes:
    dim, wide, has_bias = config.d_model, config.ffn_dim, config.imported.attention_bias
    heads = attention("attention", dim, config.num_heads, config.num_kv_heads, config.head_size)
    output = {"attention.output": heads.pop("attention.output")}
    gates = {"feed_forward.gate": (wide, dim), "feed_forward.up": (wide, dim)}
    layer = linears(heads, bias=has_bias != "none") | linears(output, bias=has_bias == "all")
    layer |= linears(gates | {"feed_forward.down": (dim, wide)}, bias=config.imported.ffn_bias)
    layer |= norms(SANDWICH if config.imported.sandwich_norms else NORMS, dim, bias=False)
    if config.imported.qk_norm:
        names = ("attention.query_norm", "attention.key_norm")
        layer |= norms(names, config.head_size, bias=False)
    return norms(["norm"], dim, bias=False) | repeated("layers", config.num_layers, layer)


def _mamba2(config: Mamba2Config) -> Shapes:
    dim, heads, channels = config.d_model, (config.num_heads,), sum(config.convolved.values())
    matrices = {f"mixer.{part}": (size, dim) for part, size in config.projected.items()}
    matrices["mixer.output"] = (dim, config.inner_dim)
    layer = linears(matrices, bias=config.imported.biases) | norms(["norm"], dim, bias=False)
    layer |= norms(["mixer.norm"], config.inner_dim, bias=False)
    layer |= {f"mixer.{name}": heads for name in ("A_log", "D", "dt_bias")}
    layer["mixer.conv.weight"] = (channels, 1, config.conv_kernel_size)
    if config.imported.conv_bias:
        layer["mixer.conv.bias"] = (channels,)
    return norms(["norm"], dim, bias=False) | repeated("layers", config.num_layers, layer)
