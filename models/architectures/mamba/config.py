"""Options of Mamba."""

from typing import Literal

from models.configs.base import LanguageModelConfig, Length, Positive, Section, Size


class MambaImports(Section):
    """Options of models that were trained elsewhere."""

    biases: bool = False  # of the input and output layers
    conv_bias: bool = True


class MambaConfig(LanguageModelConfig):
    """Layers of selective state spaces, each with a short convolution and a gate."""

    architecture: Literal["mamba"] = "mamba"
    d_model: Size = 256
    num_layers: Size = 4
    inner_dim: Size = 512
    state_dim: Size = 16  # N: numbers that are kept for each of inner_dim channels
    step_rank: Size = 16  # of the matrix that makes step sizes
    conv_kernel_size: Length = 4
    norm_epsilon: Positive = 1e-5
    tied_embeddings: bool = True
    imported: MambaImports = MambaImports()
