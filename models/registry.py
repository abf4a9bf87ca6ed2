"""Makes a configuration's torch module, and loads a checkpoint's."""

from collections.abc import Callable
from typing import Any

import torch

from models.architectures.encoders.self_attentive import SelfAttentive
from models.architectures.encoders.transformer_encoder import TransformerEncoder
from models.architectures.language_models.gpt2 import GPT2
from models.architectures.language_models.gpt_neox import GPTNeoX
from models.architectures.language_models.key_value_lm import KeyValueLM
from models.architectures.language_models.llama import Llama
from models.architectures.language_models.mamba2 import Mamba2
from models.architectures.language_models.ngram_lm import NgramLM
from models.architectures.language_models.recurrent_lm import RecurrentLM
from models.architectures.translators.bahdanau import Bahdanau
from models.architectures.translators.cho import Cho
from models.architectures.translators.convs2s import ConvS2S
from models.architectures.translators.fconv import FConv
from models.architectures.translators.lstmn import Lstmn
from models.architectures.translators.luong import Luong
from models.architectures.translators.nematus import Nematus
from models.architectures.translators.rctm import Rctm
from models.architectures.translators.sutskever import Sutskever
from models.architectures.translators.transformer import Transformer
from models.architectures.translators.transformer_ssru import TransformerSSRU
from models.configs.registry import AnyConfig
from models.contract.models import AnyModel, Encoder
from models.storage.checkpoint import Checkpoint, CheckpointError

MODULES: dict[str, Callable[[Any], AnyModel | Encoder]] = {
    "bahdanau": Bahdanau,
    "cho": Cho,
    "convs2s": ConvS2S,
    "fconv": FConv,
    "gpt2": GPT2,
    "gpt-neox": GPTNeoX,
    "key-value-lm": KeyValueLM,
    "llama": Llama,
    "lstmn": Lstmn,
    "luong": Luong,
    "mamba2": Mamba2,
    "nematus": Nematus,
    "ngram-lm": NgramLM,
    "rctm": Rctm,
    "recurrent-lm": RecurrentLM,
    "self-attentive": SelfAttentive,
    "sutskever": Sutskever,
    "transformer": Transformer,
    "transformer-encoder": TransformerEncoder,
    "transformer-ssru": TransformerSSRU,
}


def build(config: AnyConfig) -> AnyModel | Encoder:
    """Make a module with fresh weights."""
    return MODULES[config.architecture](config)


def load_module(checkpoint: Checkpoint) -> AnyModel:
    """Load a module that decodes in fp32, in evaluation mode. Raises KeyError for missing weights,
    CheckpointError for a model that only encodes.

    One weight is read after the other: together they may be all that memory holds.
    """
    module = _load(checkpoint)
    if isinstance(module, Encoder):
        problem = f"{checkpoint.config.architecture} only encodes: there is nothing that it writes"
        raise CheckpointError(checkpoint.folder, [problem])
    return module


def load_encoder(checkpoint: Checkpoint) -> Encoder:
    """Load a module that only encodes, as `load_module` does."""
    module = _load(checkpoint)
    assert isinstance(module, Encoder), f"{checkpoint.config.architecture} decodes"
    return module


def _load(checkpoint: Checkpoint) -> AnyModel | Encoder:
    module = build(checkpoint.config)
    put_weights(module, checkpoint)
    return module.eval()


def put_weights(module: AnyModel | Encoder, checkpoint: Checkpoint) -> None:
    """Give a module the weights of a checkpoint of its shape. Raises KeyError for missing ones."""
    for name, parameter in module.state_dict().items():
        parameter.copy_(torch.tensor(checkpoint.weights[name]))
