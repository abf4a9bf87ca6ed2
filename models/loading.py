"""Torch modules of configurations, with fresh weights or those of a checkpoint."""

import torch

from models.architectures.registry import AnyConfig, module_class
from models.checkpoint import Checkpoint, CheckpointError
from models.contract import AnyModel, EncoderModel


def build(config: AnyConfig) -> AnyModel | EncoderModel:
    """Return a module with fresh weights."""
    module: AnyModel | EncoderModel = module_class(config.architecture)(config)
    return module


def load_module(checkpoint: Checkpoint) -> AnyModel:
    """Return a module that decodes, with a checkpoint's weights in fp32, in evaluation mode.

    Raises KeyError for missing weights, CheckpointError for a model that only encodes. Weights are
    read one after the other, as all together may fill the memory.
    """
    module = _load(checkpoint)
    if isinstance(module, EncoderModel):
        problem = f"{checkpoint.config.architecture} only encodes: there is nothing that it writes"
        raise CheckpointError(checkpoint.folder, [problem])
    return module


def load_encoder(checkpoint: Checkpoint) -> EncoderModel:
    """Return a module that only encodes, as `load_module` does."""
    module = _load(checkpoint)
    assert isinstance(module, EncoderModel), f"{checkpoint.config.architecture} decodes"
    return module


def _load(checkpoint: Checkpoint) -> AnyModel | EncoderModel:
    module = build(checkpoint.config)
    put_weights(module, checkpoint)
    return module.eval()


def put_weights(module: AnyModel | EncoderModel, checkpoint: Checkpoint) -> None:
    """Copy a checkpoint's weights into a module of its shape. Raises KeyError for missing ones."""
    for name, parameter in module.state_dict().items():
        parameter.copy_(torch.tensor(checkpoint.weights[name]))
