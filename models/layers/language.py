"""The recurrent language model that others are variants of: cells over tokens, then a readout.

Only how outputs of the top layer become the vector that predicts the next token tells the families
apart, and nothing of that comes back into the cells. So the cells run over a whole text first, and
all of its positions are read out at once.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.batch import Batch
from models.configs.language_models.recurrent_lm import RecurrentLanguageModelConfig
from models.layers.dropout import Dropout
from models.layers.recurrent import Recurrent, initialise


class Readout(nn.Module, ABC):
    """reach: how many outputs before a position's own it reads; None: all of them."""

    reach: int | None = 0

    @abstractmethod
    def forward(self, outputs: Tensor, num_new: int) -> Tensor:
        """outputs [batch, seen, hidden_dim] of the cells, from the first position that is in reach
        of the `num_new` last ones -> what these predict from, [batch, num_new, embedding_dim].
        """


class RecurrentLanguageModel(nn.Module):
    """`forward` trains, `start` and `step` decode. Every text begins with a state of zeros."""

    def __init__(self, config: RecurrentLanguageModelConfig, readout: Readout) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        self.recurrent = Recurrent(
            config.cell,
            config.embedding_dim,
            config.hidden_dim,
            config.num_layers,
            dropout=config.dropout,
        )
        self.readout = readout
        if not config.tied_embeddings:
            self.output = nn.Linear(config.embedding_dim, config.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = Dropout(config.dropout)
        self.apply(initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every position: [batch, length, embedding_dim]."""
        return self._read(batch.input_ids, None)[0]

    def project(self, readout: Tensor) -> Tensor:
        """Readouts -> logits over the vocabulary."""
        tied = self.config.tied_embeddings
        weight = self.embedding.weight if tied else self.output.weight
        return linear(readout, weight, self.output_bias)

    def start(self, prompt_ids: Tensor) -> tuple[Tensor, dict]:
        """Read prompts of one length [batch, length]: readout of the last position and state."""
        readout, state = self._read(prompt_ids, None)
        return readout[:, -1], state

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, embedding_dim] and next state."""
        readout, state = self._read(ids[:, None], state)
        return readout[:, 0], state

    def _read(self, ids: Tensor, state: dict | None) -> tuple[Tensor, dict]:
        embedded = self.dropout(self.embedding(ids) * self.config.scale_of_embeddings)
        outputs, cells = self.recurrent(embedded, initial=state["cells"] if state else None)
        if state:
            outputs = torch.cat([state["outputs"], outputs], 1)
        readout = self.dropout(self.readout(outputs, ids.shape[1]))
        return readout, {"cells": cells, "outputs": self._within_reach(outputs)}

    def _within_reach(self, outputs: Tensor) -> Tensor:
        """Those that the next position may read."""
        reach, seen = self.readout.reach, outputs.shape[1]
        return outputs if reach is None else outputs[:, max(0, seen - reach) :]
