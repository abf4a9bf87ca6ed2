"""RNN encoder-decoder (Cho et al. 2014): every decoder step reads one vector of the sentence.

Equations are those of the paper's appendix A.1. Deviations: C c is added to the word's part of the
candidate state, outside the reset gate (the paper has r (U h + C c)), so that all cells read the
context alike; linear layers have biases.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.cho.config import ChoConfig
from models.contract import DecoderState
from models.layers.recurrent import (
    CellState,
    Readout,
    Recurrent,
    RecurrentCell,
    RecurrentTranslator,
    initialise,
)


@dataclass(frozen=True)
class ChoState(DecoderState):
    """The sentence's vector and the decoder's hidden state."""

    context: Tensor  # c [batch, hidden_dim]
    cell: CellState


class Cho(RecurrentTranslator[ChoState]):
    """Reads the source's one vector with every word."""

    def __init__(self, config: ChoConfig) -> None:
        super().__init__(config)
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.encoder = Recurrent(config.cell, embedding_dim, dim)
        self.summary = nn.Linear(dim, dim)
        self.initial = nn.Linear(dim, dim)
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=dim)
        self.readout = Readout("maxout", dim, embedding_dim, dim, config.readout_dim)
        self.apply(initialise)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> ChoState:
        """Compute c = tanh(V h_N) (A.1.1) and h'_0 = tanh(V' c) (A.1.2)."""
        _, (last,) = self.encoder(self.embed_source(source_ids), source_lengths)
        context = self.dropout(torch.tanh(self.summary(last[0])))
        return ChoState(context, self.decoder.begin(torch.tanh(self.initial(context))))

    def read(self, ids: Tensor, state: ChoState) -> tuple[Tensor, ChoState]:
        embedded, context = self.embed(ids), state.context[:, None]
        gates = self.decoder.input(embedded) + self.decoder.context(context)
        hidden, cell = self.decoder.run(gates, state.cell)
        return self.dropout(self.readout(hidden, embedded, context)), replace(state, cell=cell)
