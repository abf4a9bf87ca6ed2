"""Options of the encoder-decoder Transformer."""

from typing import Literal

from models.configs.transformer import BaseTransformerConfig


class TransformerConfig(BaseTransformerConfig):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
