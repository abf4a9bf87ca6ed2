"""Embeddings and output layers, tied or apart."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from models.configs.base import HasWords


class Vocabulary(nn.Module):
    """Embeds words and scores the next word.

    Tied, one table `embedding` does both (Press and Wolf 2017), also for source words. Otherwise
    `output` scores, and source and target each have an embedding.

    source_size: number of source words; None: there is no source, or it shares the target's table.
    output_dim: size of what is scored, if it is not the embeddings'. scale: factor of embeddings.
    cap: logits are limited smoothly to -cap..cap.
    """

    config: Any  # of the architecture

    def __init__(
        self,
        config: HasWords,
        dim: int,
        *,
        source_size: int | None = None,
        output_dim: int | None = None,
        scale: float = 1.0,
        has_bias: bool = False,
        cap: float | None = None,
    ) -> None:
        super().__init__()
        self.config, size = config, config.vocab_size
        self.is_tied, self.scale, self.cap = config.tied_embeddings, scale, cap
        self.has_one_table = self.is_tied or source_size is None
        if self.has_one_table:
            self.embedding = nn.Embedding(size, dim)
        else:
            self.source_embedding = nn.Embedding(source_size, dim)
            self.target_embedding = nn.Embedding(size, dim)
        if not self.is_tied:
            self.output = nn.Linear(output_dim or dim, size, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(size)) if has_bias else None

    @property
    def _target_table(self) -> nn.Embedding:
        return self.embedding if self.has_one_table else self.target_embedding

    def embed(self, ids: Tensor) -> Tensor:
        """Return embeddings [..., dim] of target ids [...]."""
        return self._target_table(ids) * self.scale

    def embed_source(self, ids: Tensor) -> Tensor:
        """Return embeddings [..., dim] of source ids [...]."""
        table = self.embedding if self.has_one_table else self.source_embedding
        return table(ids) * self.scale

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits [..., size] of vectors [..., output_dim]."""
        scoring = self._target_table if self.is_tied else self.output
        return capped(linear(hidden, scoring.weight, self.output_bias), self.cap)


def capped(x: Tensor, cap: float | None) -> Tensor:
    """Limit x smoothly to -cap..cap (Gemma Team 2024, 2); None: leave it unchanged."""
    return x if cap is None else cap * torch.tanh(x / cap)
