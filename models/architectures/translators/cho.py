"""RNN encoder-decoder (Cho et al. 2014): a whole sentence in one vector, read at every step.

Equations are those of the paper's appendix A.1. Deviations: C c joins the word's part of the
candidate state, outside the reset gate (the paper has r (U h + C c)), so that all cells read the
context alike; maps have biases.
"""

import torch
from torch import Tensor, nn

from models.batch import Batch
from models.configs.translators.cho import ChoConfig
from models.layers.cells import RecurrentCell
from models.layers.readout import MaxoutReadout
from models.layers.recurrent import Recurrent, initialise
from models.layers.vocabulary import VocabularyModule


class Cho(VocabularyModule):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: ChoConfig) -> None:
        super().__init__(config)
        self.config = config
        embedding_dim, dim = config.embedding_dim, config.hidden_dim
        self.encoder = Recurrent(config.cell, embedding_dim, dim)
        self.summary = nn.Linear(dim, dim)
        self.initial = nn.Linear(dim, dim)
        self.decoder = RecurrentCell(config.cell, embedding_dim, dim, context_dim=dim)
        self.readout = MaxoutReadout(dim, embedding_dim, dim, config.readout_dim)
        self.apply(initialise)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        embedded = self.embed_target(batch.input_ids)
        context = state["context"][:, None]
        gates = self.decoder.input(embedded) + self.decoder.context(context)
        hidden = self.decoder.run(gates, state["hidden"])
        return self.dropout(self.readout(hidden, embedded, context))

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids: c = tanh(V h_N) (A.1.1), h'_0 = tanh(V' c) (A.1.2)."""
        _, (last,) = self.encoder(self.embed_source(source_ids), source_lengths)
        context = self.dropout(torch.tanh(self.summary(last[0])))
        hidden = torch.tanh(self.initial(context))
        return {"context": context, "hidden": self.decoder.begin(hidden)}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        embedded, context = self.embed_target(ids), state["context"]
        gates = self.decoder.input(embedded) + self.decoder.context(context)
        hidden = self.decoder(gates, state["hidden"])
        return self.readout(hidden[0], embedded, context), {**state, "hidden": hidden}
