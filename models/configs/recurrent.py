"""What the recurrent encoder-decoders share: their cell, their sizes, and tied embeddings."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig

Cell = Literal["rnn", "lstm", "gru", "mut1", "mut2", "mut3"]


class RecurrentConfig(TranslationModelConfig):
    """Encoder and decoder made of one kind of cell; `models.layers.cells` has their equations."""

    cell: Cell = "gru"
    embedding_dim: Size = 256
    hidden_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
