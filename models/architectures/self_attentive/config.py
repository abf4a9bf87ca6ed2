"""Options of the structured self-attentive sentence embedding."""

from typing import Literal

from pydantic import Field

from models.configs.base import EmbeddingHead, EncoderConfig, Size, TextHead
from models.configs.recurrent import Cell


class SelfAttentiveConfig(EncoderConfig):
    """Several weighted sums of what a bidirectional network reads (Lin et al. 2017).

    num_hops: number of these sums. penalty: on hops with similar weights, in training.
    """

    architecture: Literal["self-attentive"] = "self-attentive"
    cell: Cell = "lstm"
    embedding_dim: Size = 256
    hidden_dim: Size = 256
    attention_dim: Size = 256
    num_hops: Size = 8
    penalty: float = Field(default=1.0, ge=0.0)
    head: TextHead = EmbeddingHead()

    @property
    def vector_dim(self) -> int:
        return self.num_hops * 2 * self.hidden_dim
