"""Builds the recurrent language model that others vary: cells over tokens, then a readout.

Only how outputs of the top layer become the vector that predicts the next token tells the families
apart, and nothing of that comes back into the cells. So the cells run over a whole text first, and
all of its positions are read out at once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.configs.recurrent import RecurrentLanguageModelConfig
from models.contract import LanguageModel, State
from models.layers.dropout import Dropout
from models.layers.recurrent.cells import CellStates
from models.layers.recurrent.recurrent import Recurrent, initialise
from models.layers.vocabulary import Vocabulary


@dataclass(frozen=True)
class RecurrentState(State):
    """Holds where the cells are, and what the readout may still read of what they said."""

    cells: CellStates = ()  # of every layer; empty: zeros
    outputs: Tensor | None = None  # [batch, within reach, hidden_dim]


class OutputReadout(nn.Module, ABC):
    """Makes of the cells' outputs what predicts the next token.

    reach: how many outputs before a position's own it reads; None: all of them.
    """

    reach: int | None = 0

    @abstractmethod
    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        """Read outputs [batch, seen, hidden_dim], from the first position that is in reach of the
        `num_new` last ones: what these predict from, [batch, num_new, embedding_dim].
        """


class RecurrentLanguageModel(Vocabulary, LanguageModel[RecurrentState]):
    """Is the base of the families, which differ in their readout."""

    config: RecurrentLanguageModelConfig

    def __init__(self, config: RecurrentLanguageModelConfig, readout: OutputReadout) -> None:
        dim, scale = config.embedding_dim, config.scale_of_embeddings
        super().__init__(config, dim, scale=scale, has_bias=True)
        sizes = dim, config.hidden_dim, config.num_layers
        self.recurrent = Recurrent(config.cell, *sizes, dropout=config.dropout)
        self.readout = readout
        self.dropout = Dropout(config.dropout)
        self.apply(initialise)

    def empty_state(self) -> RecurrentState:
        return RecurrentState()

    def read(self, ids: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        outputs, cells = self.recurrent(self.dropout(self.embed(ids)), initial=state.cells)
        if state.outputs is not None:
            outputs = torch.cat([state.outputs, outputs], 1)
        readout = self.dropout(self.readout(outputs, ids.shape[1]))
        return readout, RecurrentState(cells, self._within_reach(outputs))

    def _within_reach(self, outputs: Tensor) -> Tensor:
        """Keep those that the next position may read."""
        reach, seen = self.readout.reach, outputs.shape[1]
        return outputs if reach is None else outputs[:, max(0, seen - reach) :]
