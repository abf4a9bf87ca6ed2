"""Options of Mamba-2."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from models.configs.base import LanguageModelConfig, Length, Misfit, Size


class Mamba2Config(LanguageModelConfig):
    """Layers of state spaces, each with a short convolution before it and a gate behind it."""

    architecture: Literal["mamba2"] = "mamba2"
    d_model: Size = 256
    num_layers: Size = 4
    num_heads: Size = 8
    head_dim: Size = 64
    state_dim: Size = 64  # N: numbers that are kept for each number of a head
    num_groups: Size = 1  # of heads that share B and C
    conv_kernel_size: Length = 4
    conv_bias: bool = True
    biases: bool = False  # of the linear layers
    norm_epsilon: float = Field(default=1e-5, gt=0)
    tied_embeddings: bool = True

    @property
    def inner_dim(self) -> int:
        """How many numbers all heads have."""
        return self.num_heads * self.head_dim

    @property
    def projected(self) -> dict[str, int]:
        """How many numbers each part has of what a layer's input is projected to."""
        return {"z": self.inner_dim, **self.convolved, "dt": self.num_heads}

    @property
    def convolved(self) -> dict[str, int]:
        """How many numbers each part has of what the convolution reads."""
        shared = self.num_groups * self.state_dim
        return {"x": self.inner_dim, "B": shared, "C": shared}

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("num_heads", "num_groups")
