"""The structured self-attentive sentence embedding (Lin et al. 2017).

A = softmax(W_2 tanh(W_1 H^T)) has one row for each hop, and the embedding is M = A H. Deviations: H
may come from other cells than LSTMs; M is followed by the head that all encoders have.
"""

from typing import Any

import torch
from torch import Tensor, nn

from models.architectures.self_attentive.config import SelfAttentiveConfig
from models.batch import length_mask
from models.contract import EncoderModel
from models.layers.basic import Dropout
from models.layers.encoder import HeadLayers
from models.layers.recurrent import Recurrent, initialise


class SelfAttentive(EncoderModel):
    """Attends to a bidirectional network's outputs, once for each hop."""

    config: SelfAttentiveConfig

    def __init__(self, config: SelfAttentiveConfig) -> None:
        super().__init__()
        self.config, dim = config, config.hidden_dim
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_dim)
        self.encoder = Recurrent(config.cell, config.embedding_dim, dim, bidirectional=True)
        self.key = nn.Linear(2 * dim, config.attention_dim, bias=False)
        self.score = nn.Linear(config.attention_dim, config.num_hops, bias=False)
        self.dropout = Dropout(config.dropout)
        self.head = HeadLayers(config.vector_dim, config.head, config.dropout)
        self.apply(initialise)
        nn.init.normal_(self.embedding.weight)  # not tied to an output: as large as cells need

    def encode(
        self, source_ids: Tensor, source_lengths: Tensor, source_types: Tensor | None = None
    ) -> Tensor:
        outputs = self._read(source_ids, source_lengths)
        weights = self._weigh(outputs, source_lengths)
        if self.training:
            weights = Penalised.apply(weights, self.config.penalty)
        return self.head((weights.to(outputs.dtype) @ outputs).flatten(1))

    def hops(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        return self._weigh(self._read(source_ids, source_lengths), source_lengths)

    def project(self, hidden: Tensor) -> Tensor:
        return self.head.project(hidden)

    def _read(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return H [batch, source, 2 * hidden_dim]."""
        outputs: Tensor = self.encoder(self.dropout(self.embedding(ids)), lengths)[0]
        return outputs

    def _weigh(self, outputs: Tensor, lengths: Tensor) -> Tensor:
        """Return A [batch, hops, source]."""
        scores = self.score(torch.tanh(self.key(outputs))).transpose(1, 2)
        is_real = length_mask(lengths, outputs.shape[1])[:, None]
        return scores.masked_fill(~is_real, -torch.inf).softmax(-1)


class Penalised(torch.autograd.Function):
    """Adds the gradient of the penalty ||A A^T - I||^2 (section 2.2), averaged over a batch. The
    reported loss is without it.
    """

    @staticmethod
    def forward(ctx: Any, weights: Tensor, penalty: float) -> Tensor:
        """Return weights [batch, hops, source] unchanged."""
        ctx.save_for_backward(weights)
        ctx.penalty = penalty
        return weights.view_as(weights)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        weights = ctx.saved_tensors[0].float()
        overlap = weights @ weights.transpose(1, 2)
        overlap = overlap - torch.eye(overlap.shape[1], device=overlap.device)
        gradient = 4 * ctx.penalty / len(weights) * overlap @ weights
        return upstream[0] + gradient.to(upstream[0].dtype), None
