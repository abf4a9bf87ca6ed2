"""Options of the GPT-2-shaped language model."""

from typing import Literal

from models.configs.base import Size
from models.configs.decoder_only import DecoderOnlyConfig


class GPT2Config(DecoderOnlyConfig):
    """Decoder-only language model with learned positions, LayerNorm and GELU."""

    architecture: Literal["gpt2"] = "gpt2"
    ffn_dim: Size = 1024
