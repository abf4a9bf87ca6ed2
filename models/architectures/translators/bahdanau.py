"""RNNsearch (Bahdanau, Cho and Bengio 2015): RNN encoder-decoder with additive attention.

Equations are those of the paper's appendix A. Deviations: the GRU applies the reset gate after the
recurrent product (the form of cuDNN and ONNX), n = tanh(W x + b + r * (U h + c)); the readout sees
s_i, as in equation 4, where A.2.2 has s_{i-1}; the cell and the readout's activation can be chosen.
"""

import torch
from torch import Tensor, nn

from models.batch import Batch, length_mask
from models.configs.translators.bahdanau import BahdanauConfig
from models.layers.cells import RecurrentCell
from models.layers.readout import READOUTS
from models.layers.recurrent import Recurrent, initialise
from models.layers.vocabulary import VocabularyModule


class AdditiveAttention(nn.Module):
    """e_ij = v^T tanh(W s_{i-1} + U h_j), context c_i = sum_j softmax(e_i)_j h_j (A.1.2)."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__()
        self.query = nn.Linear(config.hidden_dim, config.attention_dim, bias=False)
        self.key = nn.Linear(2 * config.hidden_dim, config.attention_dim)
        self.score = nn.Linear(config.attention_dim, 1, bias=False)

    def forward(
        self, hidden: Tensor, memory: Tensor, keys: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """hidden [batch, H], memory [batch, source, 2H], keys = key(memory), mask [batch, source].

        Returns the context [batch, 2H] and the weights [batch, source].
        """
        energy = self.score(torch.tanh(self.query(hidden)[:, None] + keys)).squeeze(-1)
        weights = energy.masked_fill(~mask, float("-inf")).softmax(-1)
        return torch.bmm(weights[:, None].to(memory.dtype), memory)[:, 0], weights


class Bahdanau(VocabularyModule):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: BahdanauConfig) -> None:
        super().__init__(config)
        self.config = config
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.encoder = Recurrent(config.cell, embedding_dim, dim, bidirectional=True)
        self.initial = nn.Linear(dim, dim)
        self.attention = AdditiveAttention(config)
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=2 * dim)
        self.readout = READOUTS[config.readout](dim, embedding_dim, 2 * dim, config.readout_dim)
        self.apply(initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        embedded = self.embed_target(batch.input_ids)
        hiddens, contexts = [], []
        for gates in self.decoder.input(embedded).unbind(1):
            context, state = self._advance(gates, state)
            hiddens.append(state["hidden"][0])
            contexts.append(context)
        readout = self.readout(torch.stack(hiddens, 1), embedded, torch.stack(contexts, 1))
        return self.dropout(readout)

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids; s_0 = tanh(W_s h<-_1) (A.2.2)."""
        outputs, (_, backward) = self.encoder(self.embed_source(source_ids), source_lengths)
        memory = self.dropout(outputs)
        hidden = torch.tanh(self.initial(backward[0]))
        return {
            "memory": memory,
            "keys": self.attention.key(memory),
            "mask": length_mask(source_lengths, source_ids.shape[1]),
            "hidden": self.decoder.begin(hidden),
        }

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        embedded = self.embed_target(ids)
        context, state = self._advance(self.decoder.input(embedded), state)
        return self.readout(state["hidden"][0], embedded, context), state

    def _advance(self, gates: Tensor, state: dict) -> tuple[Tensor, dict]:
        """The context that the last hidden state attends to, and the state after reading both."""
        context, _ = self.attention(
            state["hidden"][0], state["memory"], state["keys"], state["mask"]
        )
        hidden = self.decoder(gates + self.decoder.context(context), state["hidden"])
        return context, {**state, "hidden": hidden}
