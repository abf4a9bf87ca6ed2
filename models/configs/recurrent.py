"""Holds what the recurrent encoder-decoders share: their cell, their sizes, and tied embeddings."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig
from models.configs.scaling import HasScaledEmbeddings

Cell = Literal["rnn", "lstm", "gru", "gru-reset-before", "mut1", "mut2", "mut3"]


class RecurrentConfig(TranslationModelConfig, HasScaledEmbeddings):
    """Encoder and decoder made of one kind of cell; `models.layers.equations` has them.

    source_vocab_size: None: that of the target, vocab_size.
    """

    cell: Cell = "gru"
    hidden_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True
    source_vocab_size: Size | None = None

    def misfits(self) -> Iterator[Misfit]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
            if self.source_vocab_size is not None:
                yield from self.must_be_equal("source_vocab_size", "vocab_size", "tied_embeddings")

    @property
    def source_vocabulary(self) -> int:
        return self.source_vocab_size or self.vocab_size
