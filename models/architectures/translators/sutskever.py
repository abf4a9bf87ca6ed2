"""Sequence to sequence (Sutskever, Vinyals and Le 2014): a deep LSTM reads, another one writes.

The decoder knows the source by its initial state alone: every layer begins where the encoder's
layer ended (section 2). With `reversed_source` the encoder reads </s> first and the first word
last (section 3.3). One deviation: a linear map brings the top layer's output to `readout_dim`, so
that the output can share the embedding's table.
"""

from torch import Tensor, nn

from models.batch import Batch
from models.configs.translators.sutskever import SutskeverConfig
from models.layers.recurrent import Recurrent, initialise, initialise_readout, reverse
from models.layers.vocabulary import VocabularyModule


class Sutskever(VocabularyModule):
    """The whole model; `forward` trains, `start` and `step` decode one token at a time."""

    def __init__(self, config: SutskeverConfig) -> None:
        super().__init__(config)
        self.config = config
        self.encoder, self.decoder = (
            Recurrent(
                config.cell,
                config.embedding_dim,
                config.hidden_dim,
                config.num_layers,
                dropout=config.dropout,
            )
            for _ in range(2)
        )
        self.readout = nn.Linear(config.hidden_dim, config.readout_dim, bias=False)
        self.apply(initialise)
        initialise_readout(self.readout, config.cell)

    def forward(self, batch: Batch) -> Tensor:
        """Readouts for every target position: [batch, target, readout_dim]."""
        assert batch.source_ids is not None and batch.source_lengths is not None
        state = self.start(batch.source_ids, batch.source_lengths)
        embedded = self.embed_target(batch.input_ids)
        hidden, _ = self.decoder(embedded, initial=state["layers"])
        return self.dropout(self.readout(hidden))

    def start(self, source_ids: Tensor, source_lengths: Tensor) -> dict:
        """Encode [batch, source] ids: the last state of every layer."""
        if self.config.reversed_source:
            source_ids = reverse(source_ids, source_lengths)
        _, layers = self.encoder(self.embed_source(source_ids), source_lengths)
        return {"layers": layers}

    def step(self, ids: Tensor, state: dict) -> tuple[Tensor, dict]:
        """Read one token per row, ids [batch]: -> readout [batch, readout_dim] and next state."""
        hidden, layers = self.decoder.step(self.embed_target(ids), state["layers"])
        return self.readout(hidden), {"layers": layers}
