"""RNNsearch (Bahdanau, Cho and Bengio 2015): RNN encoder-decoder with additive attention.

Equations are those of the paper's appendix A. Deviations: the GRU applies the reset gate after the
recurrent product (the form of cuDNN and ONNX), n = tanh(W x + b + r * (U h + c)); the readout sees
s_i, as in equation 4, where A.2.2 has s_{i-1}; the cell and the readout's activation can be chosen.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from models.batch import length_mask
from models.configs.translators.bahdanau import BahdanauConfig
from models.contract.state import State
from models.layers.cells import CellState, RecurrentCell
from models.layers.encoder_decoder import RecurrentTranslator
from models.layers.readout import READOUTS
from models.layers.recurrent import Recurrent, initialise


@dataclass(frozen=True)
class BahdanauState(State):
    """Holds the encoded source and s_i."""

    memory: Tensor  # h_j [batch, source, 2 * hidden_dim]
    keys: Tensor  # U h_j [batch, source, attention_dim]
    is_real: Tensor  # [batch, source] bool: padding is not attended to
    cell: CellState


class AdditiveAttention(nn.Module):
    """Computes e_ij = v^T tanh(W s_{i-1} + U h_j), c_i = sum_j softmax(e_i)_j h_j (A.1.2)."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.hidden_dim, config.attention_dim, bias=False)
        self.key = nn.Linear(2 * config.hidden_dim, config.attention_dim)
        self.score = nn.Linear(config.attention_dim, 1, bias=False)

    def forward(self, state: BahdanauState) -> tuple[Tensor, Tensor]:
        """Attend with the last hidden output: the context [batch, 2 * hidden_dim], and the weights
        [batch, source].
        """
        query = self.query(state.cell[0])[:, None]
        energy = self.score(torch.tanh(query + state.keys)).squeeze(-1)
        weights = energy.masked_fill(~state.is_real, float("-inf")).softmax(-1)
        return torch.bmm(weights[:, None].to(state.memory.dtype), state.memory)[:, 0], weights


class Bahdanau(RecurrentTranslator[BahdanauState]):
    """Attends with the last hidden state before it reads a word."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.encoder = Recurrent(config.cell, embedding_dim, dim, bidirectional=True)
        self.initial = nn.Linear(dim, dim)
        self.attention = AdditiveAttention(config)
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=2 * dim)
        self.readout = READOUTS[config.readout](dim, embedding_dim, 2 * dim, config.readout_dim)
        self.apply(initialise)

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> BahdanauState:
        """Begin the decoder with s_0 = tanh(W_s h<-_1) (A.2.2)."""
        outputs, (_, backward) = self.encoder(self.embed_source(source_ids), source_lengths)
        memory = self.dropout(outputs)
        return BahdanauState(
            memory,
            self.attention.key(memory),
            length_mask(source_lengths, source_ids.shape[1]),
            self.decoder.begin(torch.tanh(self.initial(backward[0]))),
        )

    def read(self, ids: Tensor, state: BahdanauState) -> tuple[Tensor, BahdanauState]:
        embedded = self.embed(ids)
        hiddens, contexts = [], []
        for gates in self.decoder.input(embedded).unbind(1):
            context, _ = self.attention(state)
            cell = self.decoder(gates + self.decoder.context(context), state.cell)
            state = replace(state, cell=cell)
            hiddens.append(cell[0])
            contexts.append(context)
        readout = self.readout(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(readout), state
