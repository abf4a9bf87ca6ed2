"""Options of the encoder-decoder Transformer."""

from collections.abc import Iterator
from typing import Literal

from models.configs.base import Misfit, Size, TranslationModelConfig


class TransformerConfig(TranslationModelConfig):
    """Encoder-decoder Transformer (Vaswani et al. 2017)."""

    architecture: Literal["transformer"] = "transformer"
    d_model: Size = 256
    num_heads: Size = 4
    ffn_dim: Size = 1024
    encoder_layers: Size = 4
    decoder_layers: Size = 2
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    norm: Literal["pre", "post"] = "pre"
    activation: Literal["relu", "gelu"] = "relu"
    tied_embeddings: bool = True

    def misfits(self) -> Iterator[Misfit]:
        yield from self.must_be_multiple("d_model", "num_heads")
        if self.d_model % 2:
            yield Misfit(("d_model",), f"d_model {self.d_model} must be even")

    @property
    def head_dim(self) -> int:
        return self.d_model // self.num_heads
