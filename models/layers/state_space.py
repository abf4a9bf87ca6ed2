"""What state space models share (Gu and Dao 2023; Dao and Gu 2024): layers of normalised mixers
whose states have a fixed size, between embedding and output.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from models.contract import DecoderState, LanguageModel
from models.layers.basic import Dropout, VocabularyLayers
from models.layers.decoder_only import initialise

LayerState = tuple[Tensor, Tensor]  # of the convolution [batch, K - 1, channels], of the recurrence
LEAST_STEP, LARGEST_STEP = 1e-3, 0.1  # dt of fresh weights


@dataclass(frozen=True)
class StateSpaceState(DecoderState):
    """The two states of every layer; empty: zeros."""

    layers: tuple[LayerState, ...] = ()


class Mixer(nn.Module, ABC):
    """One layer's update."""

    @abstractmethod
    def forward(self, u: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Read u [batch, new, d_model] after a state. Return the update, and the next state."""

    @abstractmethod
    def zeros(self, x: Tensor) -> LayerState:
        """Return the state before any token for the rows of x [batch, ...]."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Draw fresh weights."""


class StateSpaceLayer(nn.Module):
    """A mixer with a normalised input and a residual sum."""

    def __init__(self, mixer: Mixer, dim: int, epsilon: float, dropout: float) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(dim, eps=epsilon)
        self.mixer = mixer
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        update, state = self.mixer(self.norm(x), state)
        return x + self.dropout(update), state


class StateSpaceModel(VocabularyLayers, LanguageModel[StateSpaceState]):
    """Layers between embedding and output."""

    def __init__(self, config: Any, mixers: Iterable[Mixer]) -> None:
        super().__init__(config, config.d_model)
        sizes = config.d_model, config.norm_epsilon, config.dropout
        self.layers = nn.ModuleList(StateSpaceLayer(mixer, *sizes) for mixer in mixers)
        self.norm = nn.RMSNorm(config.d_model, eps=config.norm_epsilon)
        self.apply(initialise)
        for layer in self.layers:
            layer.mixer.reset_parameters()

    def empty_state(self) -> StateSpaceState:
        return StateSpaceState()

    def read(self, ids: Tensor, state: StateSpaceState) -> tuple[Tensor, StateSpaceState]:
        x, following = self.embed(ids), []
        states = state.layers or tuple(layer.mixer.zeros(x) for layer in self.layers)
        for layer, before in zip(self.layers, states, strict=True):
            x, after = layer(x, before)
            following.append(after)
        return self.norm(x), StateSpaceState(tuple(following))


@torch.no_grad()
def draw_steps(bias: Tensor) -> None:
    """Draw biases of dt so that softplus makes steps of all sizes of them."""
    nn.init.uniform_(bias, math.log(LEAST_STEP), math.log(LARGEST_STEP)).exp_()
    bias += torch.log(-torch.expm1(-bias))
