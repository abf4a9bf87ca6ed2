"""Reads by a deep LSTM and writes by another one (Sutskever, Vinyals and Le 2014).

The decoder knows the source by its initial state alone: every layer begins where the encoder's
layer ended (section 2). With `reversed_source` the encoder reads </s> first and the first word
last (section 3.3). One deviation: a linear map brings the top layer's output to `readout_dim`, so
that the output can share the embedding's table.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from models.architectures.sutskever.config import SutskeverConfig
from models.contract import State
from models.layers.recurrent import (
    CellStates,
    Recurrent,
    RecurrentTranslator,
    initialise,
    initialise_readout,
    reverse,
)


@dataclass(frozen=True)
class SutskeverState(State):
    """Where every layer is."""

    cells: CellStates


class Sutskever(RecurrentTranslator[SutskeverState]):
    """Runs one stack of cells over the source and another, from there, over the target."""

    config: SutskeverConfig

    def __init__(self, config: SutskeverConfig) -> None:
        super().__init__(config)
        sizes = config.embedding_dim, config.hidden_dim, config.num_layers
        self.encoder, self.decoder = (
            Recurrent(config.cell, *sizes, dropout=config.dropout) for _ in range(2)
        )
        self.readout = nn.Linear(config.hidden_dim, config.readout_dim, bias=False)
        self.apply(initialise)
        initialise_readout(self.readout, config.cell)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> SutskeverState:
        """Keep the last state of every layer."""
        if self.config.reversed_source:
            source_ids = reverse(source_ids, source_lengths)
        _, last = self.encoder(self.embed_source(source_ids), source_lengths)
        return SutskeverState(last)

    def read(self, ids: Tensor, state: SutskeverState) -> tuple[Tensor, SutskeverState]:
        hidden, cells = self.decoder(self.embed(ids), initial=state.cells)
        return self.dropout(self.readout(hidden)), SutskeverState(cells)
