"""RNNsearch (Bahdanau, Cho and Bengio 2015): attention to what an RNN encoded.

Equations are those of the paper's appendix A. Deviations: the readout reads s_i, as in equation 4,
where A.2.2 has s_{i-1}; the cell, the score and the readout's activation can be chosen. The paper's
cell is `gru-reset-before`; `gru` applies the reset gate after the recurrent product.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.architectures.bahdanau.config import BahdanauConfig
from models.batch import length_mask
from models.contract import DecoderState
from models.layers.attention import ATTENTIONS, Tape
from models.layers.recurrent import (
    CellState,
    Readout,
    Recurrent,
    RecurrentCell,
    RecurrentTranslator,
    initialise,
)


@dataclass(frozen=True)
class BahdanauState(DecoderState):
    """The encoded source and s_i."""

    source: Tape  # U h_j [batch, source, attention_dim], h_j [batch, source, 2 * hidden_dim]
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    cell: CellState


class Bahdanau(RecurrentTranslator[BahdanauState]):
    """Attends with the last hidden state before it reads a word."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.encoder = Recurrent(config.cell, embedding_dim, dim, bidirectional=True)
        self.initial = nn.Linear(dim, dim)
        self.attention = ATTENTIONS[config.score](
            2 * dim, config.attention_dim, dim, bias=True, is_hard=config.hard_attention
        )
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=2 * dim)
        self.readout = Readout(config.readout, dim, embedding_dim, 2 * dim, config.readout_dim)
        self.apply(initialise)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> BahdanauState:
        """The decoder begins with s_0 = tanh(W_s h<-_1) (A.2.2)."""
        outputs, (_, backward) = self.encoder(self.embed_source(source_ids), source_lengths)
        memory = self.dropout(outputs)
        source = self.attention.key(memory), memory
        is_real = length_mask(source_lengths, source_ids.shape[1])
        hidden = torch.tanh(self.initial(backward[0]))
        return BahdanauState(source, is_real, self.decoder.begin(hidden))

    def read(self, ids: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        embedded, cell = self.embed(ids), state.cell
        hiddens, contexts = [], []
        for gates in self.decoder.input(embedded).unbind(1):
            query = self.attention.query(cell[0])
            context, _ = self.attention(query, state.source, state.is_real)
            cell = self.decoder(gates + self.decoder.context(context), cell)
            hiddens.append(cell[0])
            contexts.append(context)
        readout = self.readout(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(readout), replace(state, cell=cell)
