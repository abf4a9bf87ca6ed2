"""Sequence to sequence (Sutskever, Vinyals and Le 2014): a deep LSTM reads, another one writes.

The decoder knows the source only by its initial state: every layer begins with the last state of
the encoder's layer (section 2). With `reversed_source` the encoder reads </s> first and the first
word last (section 3.3). One deviation: a linear layer brings the top layer's output to
`readout_dim`, so that the output can share the embedding's table.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from models.architectures.sutskever.config import SutskeverConfig
from models.contract import DecoderState
from models.layers.recurrent import (
    CellStates,
    Recurrent,
    RecurrentTranslator,
    initialise,
    initialise_readout,
    reverse,
)


@dataclass(frozen=True)
class SutskeverState(DecoderState):
    """The state of every layer."""

    cells: CellStates


class Sutskever(RecurrentTranslator[SutskeverState]):
    """One stack of cells over the source and another over the target, which begins where the first
    ends.
    """

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
