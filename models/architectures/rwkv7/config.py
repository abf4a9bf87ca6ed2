"""Options of RWKV-7."""

import math
from collections.abc import Iterator
from typing import Literal

from models.configs.base import Conflict, LanguageModelConfig, Positive, Size

FASTEST_DECAY = math.exp(-0.5)  # a decay is exp(-FASTEST_DECAY) at least


class RWKV7Config(LanguageModelConfig):
    """Layers that keep a matrix for each head, changed by every token.

    ..._rank: inner sizes of the low-rank matrices that make decays, learning rates, shares of the
    first layer's values, and gates.
    """

    architecture: Literal["rwkv7"] = "rwkv7"
    d_model: Size = 256
    num_layers: Size = 4
    head_dim: Size = 64
    ffn_dim: Size = 1024
    decay_rank: Size = 32
    rate_rank: Size = 32
    value_rank: Size = 16
    gate_rank: Size = 64
    norm_epsilon: Positive = 1e-5
    tied_embeddings: bool = True

    @property
    def num_heads(self) -> int:
        return self.d_model // self.head_dim

    @property
    def head_epsilon(self) -> float:
        """The epsilon of the norm of each head's output."""
        return self.norm_epsilon * self.head_dim

    def conflicts(self) -> Iterator[Conflict]:
        yield from self.must_be_multiple("d_model", "head_dim")
