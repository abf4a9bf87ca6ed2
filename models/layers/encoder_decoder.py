"""Builds what the recurrent encoder-decoders have in common: words with dropout."""

from torch import Tensor

from models.configs.recurrent import RecurrentConfig
from models.contract import S, Translator
from models.layers.dropout import Dropout
from models.layers.vocabulary import Vocabulary


class RecurrentTranslator(Vocabulary, Translator[S]):
    """Is the base of those that embed, drop out and score words alike."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(
            config,
            config.embedding_dim,
            source_size=config.source_vocabulary,
            output_dim=config.readout_dim,
            scale=config.scale_of_embeddings,
            has_bias=True,
        )
        self.dropout = Dropout(config.dropout)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embed(ids))

    def embed_source(self, ids: Tensor) -> Tensor:
        return self.dropout(super().embed_source(ids))
