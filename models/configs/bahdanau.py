"""Options of RNNsearch."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig


class BahdanauConfig(TranslationModelConfig):
    """RNNsearch (Bahdanau et al. 2015): bidirectional GRU encoder, additive attention."""

    architecture: Literal["bahdanau"] = "bahdanau"
    embedding_dim: Size = 256
    hidden_dim: Size = 256
    attention_dim: Size = 256
    readout_dim: Size = 256
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        if self.tied_embeddings:
            yield from self.must_be_equal("readout_dim", "embedding_dim", "tied_embeddings")
