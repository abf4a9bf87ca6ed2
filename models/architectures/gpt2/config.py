"""Options of the GPT-2-shaped language model."""

from typing import Literal

from models.configs.base import Positive, Size
from models.configs.transformer import Activation, DecoderOnlyConfig


class GPT2Config(DecoderOnlyConfig):
    """Decoder-only language model with learned positions, LayerNorm and GELU."""

    architecture: Literal["gpt2"] = "gpt2"
    ffn_dim: Size = 1024
    activation: Activation = "gelu_tanh"
    norm_epsilon: Positive = 1e-5
