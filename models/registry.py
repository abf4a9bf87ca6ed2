"""From a configuration to its torch module, and from a checkpoint to a loaded one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from models.bahdanau import Bahdanau
from models.checkpoint import Checkpoint
from models.cho import Cho
from models.configs.registry import AnyConfig
from models.convs2s import ConvS2S
from models.gpt2 import GPT2
from models.gpt_neox import GPTNeoX
from models.key_value_lm import KeyValueLM
from models.llama import Llama
from models.lstmn import Lstmn
from models.luong import Luong
from models.ngram_lm import NgramLM
from models.rctm import Rctm
from models.recurrent_lm import RecurrentLM
from models.sutskever import Sutskever
from models.transformer import Transformer
from models.transformer_ssru import TransformerSSRU

MODULES: dict[str, Callable[[Any], nn.Module]] = {
    "bahdanau": Bahdanau,
    "cho": Cho,
    "convs2s": ConvS2S,
    "gpt2": GPT2,
    "gpt-neox": GPTNeoX,
    "key-value-lm": KeyValueLM,
    "llama": Llama,
    "lstmn": Lstmn,
    "luong": Luong,
    "ngram-lm": NgramLM,
    "rctm": Rctm,
    "recurrent-lm": RecurrentLM,
    "sutskever": Sutskever,
    "transformer": Transformer,
    "transformer-ssru": TransformerSSRU,
}


def build(config: AnyConfig) -> nn.Module:
    """A module with fresh weights."""
    return MODULES[config.architecture](config)


def load_module(checkpoint: Checkpoint) -> nn.Module:
    """The checkpoint's module in fp32, in evaluation mode. Raises KeyError for missing weights.

    One weight is read after the other: together they may be all that memory holds.
    """
    module = build(checkpoint.config)
    for name, parameter in module.state_dict().items():
        parameter.copy_(torch.tensor(checkpoint.weights[name]))
    return module.eval()
