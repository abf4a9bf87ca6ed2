"""Families of decoder-only language models, and the shapes of their weights.

A family reads its `config.json` as one of our configurations, and maps names of tensors to names of
weights. It needs no folder: GGUF files are renamed to the same names.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from export.readers.common.options import MOST_LAYERS, Options
from export.readers.common.shapes import Shapes, attention, linears, norms, repeated
from export.readers.common.weights import Held, Table, Tensors, WeightReader, read_weights
from models.architectures.gpt2.config import GPT2Config
from models.architectures.gpt_neox.config import GPTNeoXConfig
from models.architectures.llama.config import LlamaConfig
from models.architectures.mamba2.config import Mamba2Config

NORMS = ("attention_norm", "feed_forward_norm")
SANDWICH = (*NORMS, "attention_output_norm", "feed_forward_output_norm")


def shapes_of(config: GPT2Config | GPTNeoXConfig | LlamaConfig | Mamba2Config) -> Shapes:
    """Return the shapes of all weights of a decoder-only language model."""
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
    """Return the shapes of norms and feed-forward layers with biases.

    bias: whether attention has biases.
    """
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


QUERY_KEY_VALUE = tuple(f"layers.*.attention.{part}" for part in ("query", "key", "value"))


class LanguageFamily(NamedTuple):
    """configure: returns the values of our configuration from `config.json`.
    table: returns which tensor of the file is which weight, from `config.json` and our
        configuration.
    context_length: the default length for models that read texts of any length; None: the file says
        it.
    """

    configure: Callable[[Options], dict[str, Any]]
    table: Callable[[Options, Any], Table]
    context_length: int | None = None

    def has_own_output(self, options: Options, config: Any, tensors: Tensors) -> bool:
        """Return whether the output layer has a table of its own, with other numbers than the
        embedding.
        """
        table = self.table(options, config)
        tensors.prefix = table.prefix
        return tensors.differ(*(f"{name}.weight" for name in _vocabulary(table)))

    def weights(self, options: Options, config: Any, tensors: Tensors) -> dict[str, WeightReader]:
        """Return readers of all weights. Problems are collected."""
        table = self.table(options, config)
        if config.tied_embeddings:  # under either name
            embedding, output = _vocabulary(table)
            names = {**table.names, "embedding": Held((embedding, output, embedding))}
            table = replace(table, names=names)
        return read_weights(shapes_of(config), table, tensors)


def _vocabulary(table: Table) -> tuple[str, str]:
    """Return the names of the tensors of the embedding and the output layer."""
    return str(table.names["embedding"]), str(table.names["output"])


def num_layers(config: Options, name: str = "num_hidden_layers") -> int:
    """Read the number of layers, within a sane limit."""
    return config.integer(name, at_most=MOST_LAYERS)


def special_ids(config: Options) -> dict[str, int]:
    """Return the ids of our special tokens. A token that a model does not have gets the id of its
    end token.
    """
    known = {name: config.ids(f"{name}_token_id") for name in ("eos", "bos", "pad")}
    known = {name: tuple(i for i in ids if i >= 0) for name, ids in known.items()}
    (end, *_) = (*known["eos"], *known["bos"], *known["pad"], 0)
    return {f"{name}_id": next(iter(ids), end) for name, ids in known.items()}
