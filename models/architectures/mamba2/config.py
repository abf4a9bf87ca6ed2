"""Options of Mamba-2."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import (
    Conflict,
    LanguageModelConfig,
    Length,
    Positive,
    Section,
    Size,
)


class Mamba2Imports(Section):
    """Options of models that were trained elsewhere."""

    biases: bool = False  # of the linear layers
    conv_bias: bool = True


class Mamba2Config(LanguageModelConfig):
    """Layers of state spaces, each with a short convolution before it and a gate after it."""

    architecture: Literal["mamba2"] = "mamba2"
    d_model: Size = 256
    num_layers: Size = 4
    num_heads: Size = 8
    head_dim: Size = 64
    state_dim: Size = 64  # N: numbers that are kept for each number of a head
    num_groups: Size = 1  # of heads that share B and C
    conv_kernel_size: Length = 4
    norm_epsilon: Positive = 1e-5
    tied_embeddings: bool = True
    imported: Mamba2Imports = Mamba2Imports()

    @property
    def inner_dim(self) -> int:
        """The size of all heads together."""
        return self.num_heads * self.head_dim

    @property
    def projection_sizes(self) -> dict[str, int]:
        """The sizes of the parts that a layer's input is projected to."""
        return {"z": self.inner_dim, **self.convolution_sizes, "dt": self.num_heads}

    @property
    def convolution_sizes(self) -> dict[str, int]:
        """The sizes of the parts that the convolution reads."""
        shared = self.num_groups * self.state_dim
        return {"x": self.inner_dim, "B": shared, "C": shared}

    def conflicts(self) -> Iterator[Conflict]:
        yield from self.must_be_multiple("num_heads", "num_groups")
