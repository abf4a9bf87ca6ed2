"""Words in and words out: embeddings of both sides and the output layer, tied or apart."""

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.configs.recurrent import RecurrentConfig
from models.layers.dropout import Dropout


class VocabularyModule(nn.Module):
    """What a recurrent encoder-decoder builds on; tied, all three share one table `embedding`."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.is_tied = config.tied_embeddings
        self.scale = config.scale_of_embeddings
        if self.is_tied:
            self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        else:
            self.source_embedding = nn.Embedding(config.source_vocabulary, config.embedding_dim)
            self.target_embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
            self.output = nn.Linear(config.readout_dim, config.vocab_size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.dropout = Dropout(config.dropout)

    def embed_source(self, ids: Tensor) -> Tensor:
        """[...] ids -> [..., embedding_dim], scaled, with dropout, as of the target."""
        return self._embed(ids, self.embedding if self.is_tied else self.source_embedding)

    def embed_target(self, ids: Tensor) -> Tensor:
        return self._embed(ids, self.embedding if self.is_tied else self.target_embedding)

    def project(self, readout: Tensor) -> Tensor:
        """Readouts [..., readout_dim] -> logits over the vocabulary."""
        weight = self.embedding.weight if self.is_tied else self.output.weight
        return linear(readout, weight, self.output_bias)

    def _embed(self, ids: Tensor, table: nn.Embedding) -> Tensor:
        return self.dropout(table(ids) * self.scale)
