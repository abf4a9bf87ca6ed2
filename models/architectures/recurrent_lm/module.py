"""A recurrent language model (Mikolov et al. 2010), with attention to all of the past or without.

The readout is tanh(W_x h_t); with attention, that of Daniluk et al. 2017, who attend to a window.
"""

import torch
from torch import Tensor, nn

from models.architectures.recurrent_lm.config import RecurrentLMConfig
from models.layers.recurrent_language_model import (
    AttentiveReadout,
    BaseReadout,
    RecurrentLanguageModel,
)


class PlainReadout(BaseReadout):
    """Computes h* = tanh(W_x h_t)."""

    def __init__(self, config: RecurrentLMConfig) -> None:
        super().__init__()
        self.combine = nn.Linear(config.hidden_dim, config.embedding_dim, bias=False)

    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        return torch.tanh(self.combine(outputs[:, -num_new:]))


class RecurrentLM(RecurrentLanguageModel):
    """Cells over a text, read out as `attention` says."""

    def __init__(self, config: RecurrentLMConfig) -> None:
        super().__init__(config, _readout(config))


def _readout(config: RecurrentLMConfig) -> BaseReadout:
    if config.attention is None:
        return PlainReadout(config)
    return AttentiveReadout(
        config.hidden_dim,
        num_parts=1,
        attention_dim=config.attention.dim,
        readout_dim=config.embedding_dim,
    )
